package choose

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/daemon/config"
)

const k3sYAML = "/etc/rancher/k3s/k3s.yaml"

func TestWhatIsChosenAndWhy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*config.Config)
		seen   seen
		engine string
		binary string
		why    string
		other  string // one of the others says it
		says   string // the error
	}{
		{name: "a laptop with nothing", engine: config.EngineBuiltin, why: "no K3s runs here"},
		{name: "a K3s that runs", seen: seen{kubeconfig: k3sYAML, runs: true}, engine: config.EngineK3s, why: "a K3s runs here: " + k3sYAML},
		{name: "a K3s that runs, before a kubeconfig", change: func(c *config.Config) { c.Kubeconfig = "/k" }, seen: seen{kubeconfig: k3sYAML, runs: true}, engine: config.EngineK3s, why: "a K3s runs", other: "cluster of /k"},
		{name: "a K3s that does not run", seen: seen{kubeconfig: k3sYAML}, engine: config.EngineBuiltin, why: "no K3s runs here", other: k3sYAML},
		{name: "a kubeconfig", change: func(c *config.Config) { c.Kubeconfig = "/k" }, engine: config.EngineKubeconfig, why: "kubeconfig is set"},
		{name: "a program in PATH is no reason", seen: seen{binary: "/usr/bin/k3s"}, engine: config.EngineBuiltin, why: "no K3s runs here"},
		{name: "a program that is set is one", change: func(c *config.Config) { c.K3sBinary = "/opt/k3s" }, engine: config.EngineK3s, binary: "/opt/k3s", why: "k3sBinary is set"},
		{name: "data of the built-in one stays in use", seen: seen{builtin: true, kubeconfig: k3sYAML, runs: true}, engine: config.EngineBuiltin, why: "has run here before", other: "set engine to k3s"},
		{name: "what was chosen stays", seen: seen{noted: config.EngineBuiltin, kubeconfig: k3sYAML, runs: true}, engine: config.EngineBuiltin, why: "chosen before", other: "set engine to k3s"},
		{name: "a K3s that was chosen and is stopped", seen: seen{noted: service, kubeconfig: k3sYAML, builtin: true}, engine: config.EngineK3s, why: "chosen before", other: "set engine to builtin"},
		{name: "a K3s that was chosen and is gone", seen: seen{noted: service}, says: "which is gone"},
		{name: "a K3s of ours that was chosen", seen: seen{noted: config.EngineK3s, binary: "/usr/bin/k3s"}, engine: config.EngineK3s, binary: "/usr/bin/k3s", why: "chosen before"},
		{name: "a K3s of ours whose program is gone", seen: seen{noted: config.EngineK3s}, says: "not in PATH any more"},
		{name: "a kubeconfig that was taken out", seen: seen{noted: config.EngineKubeconfig}, engine: config.EngineBuiltin, why: "no K3s runs here"},
		{name: "none before", seen: seen{noted: config.EngineNone}, engine: config.EngineBuiltin, why: "no K3s runs here"},
		{name: "k3s, and a service", change: func(c *config.Config) { c.Engine = config.EngineK3s }, seen: seen{kubeconfig: k3sYAML, binary: "/usr/bin/k3s"}, engine: config.EngineK3s, why: "installed here as a service"},
		{name: "k3s, which kithd ran before there was a service", change: func(c *config.Config) { c.Engine = config.EngineK3s }, seen: seen{noted: config.EngineK3s, kubeconfig: k3sYAML, binary: "/usr/bin/k3s"}, engine: config.EngineK3s, binary: "/usr/bin/k3s", why: "kithd runs /usr/bin/k3s"},
		{name: "k3s, and a program alone", change: func(c *config.Config) { c.Engine = config.EngineK3s }, seen: seen{binary: "/usr/bin/k3s"}, engine: config.EngineK3s, binary: "/usr/bin/k3s", why: "kithd runs /usr/bin/k3s"},
		{name: "k3s, and nothing", change: func(c *config.Config) { c.Engine = config.EngineK3s }, says: "neither a kubeconfig of a K3s server here nor k3s in PATH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Engine = config.EngineAuto
			if tt.change != nil {
				tt.change(&cfg)
			}
			got, choice, err := decide(cfg, tt.seen)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want it to say %q", err, tt.says)
				}
				return
			}
			if err != nil || got.Engine != tt.engine || got.K3sBinary != tt.binary || !strings.Contains(choice.Why, tt.why) {
				t.Errorf("%s %q because %q, %v", got.Engine, got.K3sBinary, choice.Why, err)
			}
			if others := strings.Join(choice.Others, "\n"); (tt.other == "") != (others == "") || !strings.Contains(others, tt.other) {
				t.Errorf("others: %q, want %q", others, tt.other)
			}
		})
	}
}

func TestWhatWasChosenIsNoted(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	for _, tt := range []struct{ engine, binary, noted string }{{config.EngineK3s, "", service}, {config.EngineK3s, "/k3s", config.EngineK3s}, {config.EngineBuiltin, "", config.EngineBuiltin}} {
		cfg.Engine, cfg.K3sBinary = tt.engine, tt.binary
		if err := Note(cfg); err != nil {
			t.Fatal(err)
		}
		if s, err := look(t.Context(), cfg.DataDir); err != nil || s.noted != tt.noted {
			t.Errorf("%q, %v; want %q", s.noted, err, tt.noted)
		}
	}
	if err := os.Mkdir(filepath.Join(cfg.DataDir, "k8s"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s, _ := look(t.Context(), cfg.DataDir); s.builtin {
		t.Error("an empty folder is taken for a cluster")
	}
	if err := os.WriteFile(filepath.Join(cfg.DataDir, "k8s", "version"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, _ := look(t.Context(), cfg.DataDir); !s.builtin {
		t.Error("a cluster is not seen")
	}
}

func TestAnEngineThatIsSetIsLeftAlone(t *testing.T) {
	for _, engine := range []string{config.EngineBuiltin, config.EngineKubeconfig, config.EngineNone} {
		cfg := config.Default()
		cfg.Engine, cfg.DataDir = engine, filepath.Join(t.TempDir(), "none")
		if got, choice, err := Engine(context.Background(), cfg); err != nil || got.Engine != engine || choice.Why != "" {
			t.Errorf("%s: %s %+v %v", engine, got.Engine, choice, err)
		}
	}
}

func TestOnlyAServerThatListensAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	leads := func(to string) []byte { return []byte("clusters: [{cluster: {server: \"" + to + "\"}}]") }
	at := "https://" + l.Addr().String()
	if !answers(t.Context(), leads(at)) {
		t.Error("one that listens")
	}
	l.Close()
	for _, text := range [][]byte{leads(at), leads("::"), []byte("a: ["), nil} {
		if answers(t.Context(), text) {
			t.Errorf("%q answers", text)
		}
	}
}
