package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// aMachine runs a script as the first process of a machine of its own: of processes, mounts and network. Its /run and /var/lib are empty,
// and in /etc/kith is conf. $dir is the folder of the programs.
func aMachine(t *testing.T, conf, script string) (string, error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("machines need root")
	}
	dir := t.TempDir()
	teardown, err := os.ReadFile("teardown.in")
	if err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"teardown": []byte(strings.NewReplacer("@libexecdir@", dir, "@bindir@", dir, "conf=/etc/kith/config.yaml", "conf="+dir+"/config.yaml").Replace(string(teardown))),
		"kithd":    program, "kith-k8s": program, "containerd-shim-runc-v2": program, "config.yaml": []byte(conf),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", `
		mount -t tmpfs tmpfs /run
		mount -t tmpfs tmpfs /var/lib
		mount -t tmpfs tmpfs /mnt
		ip link set lo up
		alive() { kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' /proc/$1/status; }
		`+script)
	cmd.Env = append(os.Environ(), "dir="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestTeardownEndsWhatIsKithsAlone: neither a program of the same path in a container, nor mounts, rules, tables and links of others.
func TestTeardownEndsWhatIsKithsAlone(t *testing.T) {
	for _, program := range []string{"ip", "nft", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	out, err := aMachine(t, "", `
		"$dir/containerd-shim-runc-v2" 1000 & ours=$!
		sleep 1000 & others=$!
		unshare --pid --fork --kill-child "$dir/containerd-shim-runc-v2" 1000 & container=$!
		unshare --pid --fork --kill-child "$dir/kithd" 1000 & daemon=$!
		sleep 0.2
		theirs=$(cat /proc/$container/task/$container/children)
		mkdir -p /run/kith/k8s/volume /run/kith/k8s/engine /var/lib/kith/k8s/kubelet /var/lib/other "/var/lib/kith/k8s/a  *b"
		mount -t tmpfs tmpfs /run/kith/k8s/volume; mount -t tmpfs tmpfs /var/lib/kith/k8s/kubelet; mount -t tmpfs tmpfs /var/lib/other
		mount -t tmpfs tmpfs "/var/lib/kith/k8s/a  *b"
		echo "{\"pid\":$others}" >/run/kith/k8s/engine.pid
		ip link add kith0 type bridge; ip link add cni0 type bridge; ip link add other0 type bridge
		ip rule add pref 77 lookup 77 protocol 107; ip -6 rule add pref 77 lookup 77 protocol 107; ip rule add pref 78 lookup 78
		ip link set other0 up; ip route add 10.9.9.0/24 dev other0; ip route add 10.9.8.0/24 dev other0 proto 107; ip -6 route add fd09::/64 dev other0 proto 107
		nft add table ip kith-fence; nft add table arp kith-links; nft add table bridge kith-links; nft add table inet kith-bandwidth; nft add table ip other; nft add table ip kube-proxy
		"$dir/teardown" 1
		! alive $ours || echo "our shim runs"
		alive $others || echo "a process that only has the number in a pid file was ended"
		alive $container && alive $theirs || echo "a shim of a container was ended"
		alive $daemon || echo "the kithd of a container was ended"
		! grep -E ' /(run|var/lib)/kith' /proc/mounts || echo "mounted"
		grep -q ' /var/lib/other ' /proc/mounts || echo "another's mount is gone"
		[ ! -e /run/kith ] || echo "/run/kith is left"
		[ -d /var/lib/kith/k8s ] || echo "data are gone"
		! ip link show kith0 2>/dev/null || echo "kith0 is left"
		ip link show other0 >/dev/null && ip link show cni0 >/dev/null || echo "another's link is gone"
		! ip rule | grep ^77: || echo "a rule is left"
		! ip -6 rule | grep ^77: || echo "a rule of IPv6 is left"
		ip rule | grep -q ^78: || echo "another's rule is gone"
		ip route | grep -q 10.9.9 || echo "another's route is gone"
		! { ip route; ip -6 route; } | grep -E '10.9.8|fd09' || echo "a route is left"
		! nft list tables | grep kith || echo "a table is left"
		nft list tables | grep -q other && nft list tables | grep -q kube-proxy || echo "another's table is gone"
		kill $others $container $daemon
	`)
	if err != nil || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTeardownEndsAK3sThatKithdRuns, whatever its program is, by what kithd noted of it: a process that only has the number is another's, and so is then /run/k3s.
func TestTeardownEndsAK3sThatKithdRuns(t *testing.T) {
	for ours, want := range map[string]string{"yes": "ended, gone\n", "no": "runs, there\n"} {
		out, err := aMachine(t, "", `
			cp "$dir/kithd" "$dir/k3s) (1 2"
			"$dir/k3s) (1 2" 1000 & pid=$!
			sleep 0.2
			ticks=$(sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f20)
			[ `+ours+` = yes ] || ticks=$((ticks - 1))
			mkdir -p /run/kith/k3s /run/k3s/containerd /var/lib/kith/k3s/agent
			mount -t tmpfs tmpfs /var/lib/kith/k3s/agent; mount -t tmpfs tmpfs /run/k3s/containerd
			echo "{\"pid\":$pid,\"born\":\"$ticks\",\"fingerprint\":\"x\"}" >/run/kith/k3s/engine.pid
			"$dir/teardown" 1
			if alive $pid; then printf 'runs, '; else printf 'ended, '; fi
			if [ -e /run/k3s ]; then echo there; else echo gone; fi
			! grep ' /var/lib/kith/k3s' /proc/mounts || echo mounted
			kill $pid 2>/dev/null || true
		`)
		if err != nil || out != want {
			t.Errorf("ours: %s: %v\n%s, want %s", ours, err, out, want)
		}
	}
}

// TestTeardownInAChrootIsOfNobodyElse: a package is removed in another system's tree, while a Kith runs around it.
func TestTeardownInAChrootIsOfNobodyElse(t *testing.T) {
	out, err := aMachine(t, "", `
		"$dir/containerd-shim-runc-v2" 1000 & shim=$!
		ip link add kith0 type bridge
		nft add table ip kith-fence
		mkdir /mnt/root
		for d in usr bin sbin lib lib64 etc sys "$dir"; do [ ! -d /$d ] || { mkdir -p /mnt/root/$d; mount --rbind /$d /mnt/root/$d; }; done
		mkdir -p /mnt/root/proc /mnt/root/run /mnt/root/var/lib
		for proc in without with; do
			[ $proc = without ] || mount -t proc proc /mnt/root/proc
			chroot /mnt/root "$dir/teardown" 1 || echo "it fails $proc /proc"
			alive $shim || echo "the shim of the system around it was ended, $proc /proc"
			ip link show kith0 >/dev/null && nft list tables | grep -q kith-fence || echo "its network is gone, $proc /proc"
		done
		kill $shim
	`)
	if err != nil || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTeardownFollowsTheConfiguration: quotes, comments, links and what another place has besides.
func TestTeardownFollowsTheConfiguration(t *testing.T) {
	out, err := aMachine(t, "name: alice\nrunDir: '/mnt/my run' # here\ndataDir: \"/mnt/link\"\n", `
		mkdir -p "/mnt/my run/k8s/volume" "/mnt/my run/other" /mnt/data/k8s/kubelet /mnt/my/k8s
		ln -s data /mnt/link
		mount -t tmpfs tmpfs /mnt/data/k8s/kubelet
		"$dir/teardown" 1
		[ ! -e "/mnt/my run/k8s" ] || echo "its files are left"
		[ -d "/mnt/my run/other" ] && [ -d /mnt/my/k8s ] && [ -d /mnt/data/k8s ] || echo "another's files are gone"
		! grep ' /mnt/data' /proc/mounts || echo "mounted"
	`)
	if err != nil || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTeardownRefuses(t *testing.T) {
	for script, says := range map[string]string{
		`"$dir/kithd" 1000 & sleep 0.1; "$dir/teardown"`: "kithd runs: stop it first",
		`"$dir/teardown" soon`:                           "soon is no number of seconds",
		`"$dir/teardown" goodbye -1`:                     "-1 is no number of seconds",
	} {
		if out, err := aMachine(t, "", script); err == nil || !strings.Contains(out, says) {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
	// There is nobody to tell peers anything: no reason to fail.
	if out, err := aMachine(t, "", `"$dir/teardown" goodbye`); err != nil || out != "" {
		t.Errorf("%v: %s", err, out)
	}
}
