// Package choose decides which Kubernetes kithd works with where the owner leaves that to it (engine auto), and says why. The daemon asks
// when it starts, `kith doctor` when no daemon answers.
//
// What was chosen once is kept, for pods and volumes are in it: another choice is the owner's. The package changes nothing but the note of
// what was chosen.
package choose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
	"kith.dev/core/base/durable"
	"kith.dev/core/base/layout"
	"kith.dev/core/base/systemd"
	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/daemon/config"
)

// service is the word for a K3s that its owner runs, where engine k3s alone would be one that kithd runs.
const service = "k3s-service"

// Choice is what was chosen.
type Choice struct {
	Why    string   // in words, such as "a K3s runs here"
	Others []string // sentences, each of another that could be chosen
}

// K3sUnit is the service that K3s' installer makes.
const K3sUnit = "k3s.service"

// seen is what there is on this machine.
type seen struct {
	noted      string // what was chosen before; "" at the first start
	builtin    bool   // the built-in Kubernetes has data here
	kubeconfig string // of a K3s that is installed as a server; "" without
	runs       bool   // it answers, or is started at boot
	binary     string // k3s in PATH; "" without
}

// Engine gives the configuration with the engine chosen, which is none of config.EngineAuto any more. With engine k3s, K3sBinary is set when
// kithd runs it, and empty when it is a service of its owner.
func Engine(ctx context.Context, cfg config.Config) (config.Config, Choice, error) {
	if cfg.Engine != config.EngineAuto && cfg.Engine != config.EngineK3s {
		return cfg, Choice{}, nil
	}
	s, err := look(ctx, cfg.DataDir)
	if err != nil {
		return cfg, Choice{}, err
	}
	chosen, choice, err := decide(cfg, s)
	if err == nil {
		err = chosen.Check()
	}
	return chosen, choice, err
}

func decide(cfg config.Config, s seen) (config.Config, Choice, error) {
	if cfg.Engine == config.EngineK3s {
		switch {
		case cfg.K3sBinary != "":
			return cfg, Choice{}, nil
		case s.kubeconfig != "" && s.noted != config.EngineK3s:
			return cfg, Choice{Why: "K3s is installed here as a service: " + s.kubeconfig}, nil
		case s.binary != "":
			cfg.K3sBinary = s.binary
			return cfg, Choice{Why: "kithd runs " + s.binary}, nil
		}
		return cfg, Choice{}, invalidK3s("there is neither a kubeconfig of a K3s server here nor k3s in PATH")
	}
	word, why := first(cfg, s)
	switch word {
	case service:
		if s.kubeconfig == "" {
			return cfg, Choice{}, invalidK3s("kithd worked with the K3s that ran here, which is gone")
		}
		cfg.Engine = config.EngineK3s
	case config.EngineK3s:
		if cfg.Engine = word; cfg.K3sBinary == "" {
			cfg.K3sBinary = s.binary
		}
		if cfg.K3sBinary == "" {
			return cfg, Choice{}, invalidK3s("kithd ran a K3s here, and k3s is not in PATH any more")
		}
	default:
		cfg.Engine = word
	}
	return cfg, Choice{Why: why, Others: others(cfg, word, s)}, nil
}

func invalidK3s(why string) error {
	return &api.Error{Code: api.CodeInvalid, Message: "engine k3s cannot be had: " + why, Field: "engine",
		Do: "install K3s, set k3sBinary to its program, or set engine to " + config.EngineBuiltin}
}

// first is the word of the choice, and why.
func first(cfg config.Config, s seen) (word, why string) {
	switch {
	case s.noted == config.EngineKubeconfig && cfg.Kubeconfig == "": // the owner took it out of the configuration
	case s.noted != "" && s.noted != config.EngineNone:
		return s.noted, "it was chosen before, and what runs in it stays there"
	case s.builtin:
		return config.EngineBuiltin, "it has run here before, and what runs in it stays there"
	}
	switch {
	case cfg.K3sBinary != "":
		return config.EngineK3s, "k3sBinary is set"
	case s.runs:
		return service, "a K3s runs here: " + s.kubeconfig
	case cfg.Kubeconfig != "":
		return config.EngineKubeconfig, "kubeconfig is set"
	}
	return config.EngineBuiltin, "no K3s runs here, and no kubeconfig is set"
}

// others are sentences about what else could be.
func others(cfg config.Config, word string, s seen) (list []string) {
	if word != service && s.kubeconfig != "" {
		list = append(list, "a K3s is installed here, too ("+s.kubeconfig+"): set engine to k3s to work with it; what runs now stays where it is, and is not moved")
	}
	if word != config.EngineKubeconfig && cfg.Kubeconfig != "" {
		list = append(list, "kubeconfig is set: set engine to kubeconfig to work with the cluster of "+cfg.Kubeconfig)
	}
	if word != config.EngineBuiltin && s.builtin {
		list = append(list, "the built-in Kubernetes has pods and volumes here: set engine to builtin to work with it")
	}
	return list
}

func noteFile(dataDir string) string { return filepath.Join(dataDir, "engine") }

// Note keeps what was chosen for the next start.
func Note(cfg config.Config) error {
	word := cfg.Engine
	if word == config.EngineK3s && cfg.K3sBinary == "" {
		word = service
	}
	if last, err := os.ReadFile(noteFile(cfg.DataDir)); err == nil && strings.TrimSpace(string(last)) == word {
		return nil
	}
	return durable.WriteFile(noteFile(cfg.DataDir), []byte(word+"\n"), 0o600)
}

// look looks at what is there.
func look(ctx context.Context, dataDir string) (s seen, err error) {
	noted, err := os.ReadFile(noteFile(dataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("which engine was chosen before: %w", err)
	}
	s.noted = strings.TrimSpace(string(noted))
	_, err = os.Stat(filepath.Join(dataDir, layout.Engine, layout.File))
	s.builtin = err == nil
	if s.binary, err = exec.LookPath("k3s"); err != nil {
		const usual = "/usr/local/bin/k3s" // where the installer puts it, and not in every service's PATH
		if st, err := os.Stat(usual); err == nil && st.Mode()&0o111 != 0 {
			s.binary = usual
		}
	}
	path := k3sconfig.Kubeconfig
	if all, err := k3sconfig.Read(k3sconfig.File); err != nil {
		return s, fmt.Errorf("configuration of K3s: %w", err)
	} else if at := all.Last("write-kubeconfig"); at != "" {
		path = at
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	} else if err != nil {
		return s, fmt.Errorf("kubeconfig of K3s: %w", err)
	}
	s.kubeconfig = path
	if unit, found := systemd.Find(ctx, K3sUnit); found && unit.Enabled(ctx) {
		s.runs = true
		return s, nil
	}
	s.runs = answers(ctx, text)
	return s, nil
}

// answers reports whether somebody listens where a kubeconfig leads.
func answers(ctx context.Context, kubeconfig []byte) bool {
	var k struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if yaml.Unmarshal(kubeconfig, &k) != nil || len(k.Clusters) == 0 {
		return false
	}
	server, err := url.Parse(k.Clusters[0].Cluster.Server)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
