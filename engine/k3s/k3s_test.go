package k3s

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kith.dev/engine/config"
)

func configured(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFlagsAndFilesOfK3sAreHonoured(t *testing.T) {
	file := configured(t, `node-name: bob
node-ip: 192.0.2.7
cluster-cidr: 10.44.0.0/16
service-cidr: 10.45.0.0/16
tls-san: [k3s.example.org, 192.0.2.8]
disable: [traefik, servicelb]
disable-scheduler: true
https-listen-port: 7443
kube-controller-manager-arg: ["controllers=namespace-controller", "v=2"]
kube-apiserver-arg: [v=1]
kube-proxy-arg: nodeport-addresses=127.0.0.0/8
write-kubeconfig-mode: "0644"
`)
	if err := os.Mkdir(file+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".d/zz.yaml", []byte("egress-selector-mode: disabled\ntls-san+: [more]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Parse([]string{"--config", file, "--data-dir=/data", "--tls-san=told"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Complete("/opt/kith/kith-k8s", "host"); err != nil {
		t.Fatal(err)
	}
	if c.NodeName != "bob" || c.NodeIP.String() != "192.0.2.7" || c.ClusterCIDR.String() != "10.44.0.0/16" || c.PodCIDR.String() != "10.44.0.0/24" ||
		c.ClusterDNS.String() != "10.45.0.10" || c.Port != 7443 || c.Expose != config.ExposeNone {
		t.Errorf("%+v", c)
	}
	if c.DataDir != "/data/server" || c.RunDir != "/run/k3s" || c.ImagesDir != "/data/agent/images" || c.WriteKubeconfig != "/etc/rancher/k3s/k3s.yaml" {
		t.Errorf("%+v", c)
	}
	k := c.K3s
	if !k.Stands || !k.NoScheduler || k.NoControllers || k.Egress || k.KubeconfigMode != 0o644 || k.Controllers["controllers"] != "namespace-controller" || k.APIServer["v"] != "1" {
		t.Errorf("%+v", k)
	}
	if !slices.Equal(k.Names, []string{"told"}) { // the command line wins over all of a list
		t.Errorf("names %q", k.Names)
	}
}

func TestDefaultsAreThoseOfK3s(t *testing.T) {
	c, err := Parse([]string{"--config", configured(t, ""), "--node-ip", "192.0.2.7"})
	if err != nil {
		t.Fatal(err)
	}
	if !c.K3s.Egress || c.K3s.KubeconfigMode != 0o600 || c.DataDir != "/var/lib/rancher/k3s/server" || c.ClusterCIDR != netip.MustParsePrefix("10.42.0.0/16") || c.Expose != config.ExposeLAN {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsNotHonouredIsRefusedByName(t *testing.T) {
	for text, says := range map[string]string{
		"rootless: true": "--rootless is a flag of K3s which this stand-in does not honour", "kubelet-arg: [v=2]": "--kubelet-arg is",
		"no-such: 1": "flag provided but not defined: -no-such", "egress-selector-mode: all": "want agent, cluster, pod or disabled",
		"cluster-cidr: 10.42.0.0/16,fd00::/48": "has one, of IPv4", "kube-proxy-arg: [v=2]": "--v is a flag of kube-proxy", "write-kubeconfig-mode: rw": "octal",
		"kube-apiserver-arg: [v]": "want name=value",
	} {
		if _, err := Parse([]string{"--config", configured(t, text), "--node-ip=192.0.2.7"}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", text, err, says)
		}
	}
	for _, args := range [][]string{{"--config", "/no/such/file"}, {"--selinux"}, {"--no-such"}, {"word"}} {
		if _, err := Parse(append(args, "--node-ip=192.0.2.7")); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

func TestFoldersAreLaidOutAsK3sHasThem(t *testing.T) {
	data := t.TempDir()
	c := &config.Config{DataDir: filepath.Join(data, "server")}
	for range 2 { // also when they are there
		if err := Lay(c); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"server/cred", "server/tls", "server/manifests", "agent/images", "agent/containerd", "agent/etc/containerd"} {
		if st, err := os.Stat(filepath.Join(data, name)); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", name, err)
		}
	}
}
