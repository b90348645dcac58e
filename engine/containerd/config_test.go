package containerd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runtimes gives, of a configuration, the program and the network of each runtime.
func runtimes(t *testing.T, o Options) map[string]string {
	t.Helper()
	conf, err := o.render()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	section := regexp.MustCompile(`containerd[.]runtimes[.]([-a-z]+)`)
	value := regexp.MustCompile(`^ *(BinaryName|cni_conf_dir) = "(.*)"$`)
	name := ""
	for line := range strings.Lines(string(conf)) {
		if m := section.FindStringSubmatch(line); m != nil {
			name = m[1]
			all[name] += ""
		} else if m := value.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && name != "" {
			all[name] += m[1] + "=" + m[2] + " "
		}
	}
	if strings.Contains(string(conf), "enable_cdi") || strings.Contains(string(conf), "cdi_spec_dirs") {
		t.Error("it says something of CDI, which containerd has on")
	}
	return all
}

// NVIDIA's runtime is there for the owner's pods and for guests, whose network is never the owner's.
func TestTheRuntimesOfTheConfiguration(t *testing.T) {
	o := Options{RuntimeDir: "/opt/kith", CNIConf: "/cni", GuestConf: "/guests"}
	plain := map[string]string{"runc": "BinaryName=/opt/kith/runc ", "kith-guest": "cni_conf_dir=/guests BinaryName=/opt/kith/runc "}
	both := map[string]string{
		"nvidia":            "BinaryName=/usr/bin/nvidia-container-runtime ",
		"kith-guest-nvidia": "cni_conf_dir=/guests BinaryName=/usr/bin/nvidia-container-runtime ",
	}
	for name, is := range plain {
		both[name] = is
	}
	for nvidia, want := range map[string]map[string]string{"": plain, "/usr/bin/nvidia-container-runtime": both} {
		o.NVIDIA = nvidia
		got := runtimes(t, o)
		if len(got) != len(want) {
			t.Errorf("%q: %v", nvidia, got)
		}
		for name, is := range want {
			if got[name] != is {
				t.Errorf("%q: %s is %q, want %q", nvidia, name, got[name], is)
			}
		}
	}
}

func TestNVIDIAsRuntimeIsFoundWhereItIsInstalled(t *testing.T) {
	root := t.TempDir()
	if got := FindNVIDIA(root); got != "" {
		t.Errorf("found %q in nothing", got)
	}
	for _, dir := range []string{"usr/local/nvidia/toolkit", "usr/bin"} { // the later before the earlier
		path := filepath.Join(root, dir, "nvidia-container-runtime")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := FindNVIDIA(root); got == path {
			t.Errorf("%s cannot be run", got)
		}
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := FindNVIDIA(root); got != path {
			t.Errorf("found %q, want %q", got, path)
		}
	}
}
