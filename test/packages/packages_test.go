//go:build packages

package packages

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	older = "1.0.0"
	newer = "1.1.0"
)

// pack makes the package of a version out of the programs in bin/. Times of files differ between versions, as they would: what runs
// is told from what was installed by them.
func pack(t *testing.T, version string, epoch int) string {
	t.Helper()
	out := t.TempDir()
	must(t, "env", "COMPRESSION=zstd", "VERSION="+version, "OUT="+out, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch), "../../scripts/package.sh", "deb", "amd64")
	found, err := filepath.Glob(out + "/*.deb")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// TestALaptopsLifeWithThePackage: installed, rebooted, upgraded under a pod that serves, taken back, not over what it cannot read, removed,
// installed again, and purged: the machine is as it was.
func TestALaptopsLifeWithThePackage(t *testing.T) {
	m := newMachine(t, cmp.Or(os.Getenv("SUITE"), "bookworm"))
	debs := map[string]string{}
	for i, version := range []string{older, newer} {
		deb := pack(t, version, 1700000000+i)
		debs[version] = "/root/" + filepath.Base(deb)
		must(t, "mv", deb, m.root+debs[version])
	}
	m.prepare()
	step := m.story(t)
	// Of debootstrap's least variant: without the names of protocols no service would have an address that answers.
	step("what it needs is asked for", func(t *testing.T) {
		if out, err := m.try("apt-get", "install", "-y", "--no-install-recommends", debs[older]); err == nil || !strings.Contains(out, "netbase") {
			t.Errorf("%v: %s", err, out)
		}
		m.must("dpkg", "--install", "/root/netbase.deb")
	})
	before := m.snapshot()

	install := func(version string) string {
		return m.must("apt-get", "install", "-y", "--no-install-recommends", debs[version])
	}
	works, pod, podReady := m.works, m.pod, m.podReady
	version := func() string { return m.must("dpkg-query", "-W", "-f", "${Version} ${Status}", "kith") }

	step("installed, it runs", func(t *testing.T) {
		if out := install(older); !strings.Contains(out, "alice is in the group kith now") || !strings.Contains(out, "after logging in again") {
			t.Error(out)
		}
		works()
		if out := m.must("runuser", "-l", "alice", "-c", "kith status"); !strings.Contains(out, "node laptop") { // without sudo
			t.Error(out)
		}
		// No kubectl of a distribution's is there.
		if out := m.must("runuser", "-l", "alice", "-c", "kith-k8s kubectl get nodes"); !strings.Contains(out, "laptop") {
			t.Error(out)
		}
		if out := m.must("runuser", "-l", "alice", "-c", "kith kubeconfig --merge && rm -r .kube && kith docs install"); !strings.Contains(out, "\nkith-k8s kubectl get nodes\n") || !strings.Contains(out, "# Installing Kith") {
			t.Error(out)
		}
		for _, path := range []string{"/usr/share/man/man1/kith-k8s.1.gz", "/usr/share/doc/kith/docs/pods.md", "/etc/xdg/autostart/kith-tray.desktop", "/usr/share/applications/kith-tray.desktop", "/usr/share/icons/hicolor/scalable/apps/kith.svg",
			"/usr/share/man/man1/kith.1.gz", "/usr/share/bash-completion/completions/kith", "/usr/share/metainfo/dev.kith.kith.metainfo.xml"} {
			m.must("test", "-s", path)
		}
		if out := m.must("dpkg-query", "-W", "-f", "${Conffiles}", "kith"); !strings.Contains(out, "/etc/kith/config.yaml ") {
			t.Errorf("conffiles: %s", out)
		}
		m.runApp()
	})
	step("a configuration that it does not understand is named to whoever asks", func(t *testing.T) {
		const config, key = "/etc/kith/config.yaml", "nme: laptop"
		m.must("cp", "-p", config, "/root/config.yaml")
		m.must("sh", "-c", "echo '"+key+"' >> "+config)
		if out, err := m.try("systemctl", "restart", "kithd"); err == nil {
			t.Errorf("it started with %q: %s", key, out)
		}
		out, err := m.try("runuser", "-l", "alice", "-c", "kith status")
		if err == nil || !strings.Contains(out, "kithd is not running: it does not start with "+config+": there is no key nme: did you mean name?") {
			t.Errorf("%v: %s", err, out)
		}
		m.must("cp", "-p", "/root/config.yaml", config)
		m.must("rm", "/root/config.yaml")
		m.must("systemctl", "start", "kithd")
		works()
	})
	step("rebooted, all is back", func(*testing.T) {
		was := pod()
		m.reboot()
		works()
		podReady(was)
	})
	step("upgraded, the pod and who speaks with it notice nothing", func(*testing.T) {
		m.under(func() { install(newer) })
	})
	step("what it cannot read is refused, and nothing changed", func(t *testing.T) {
		was, kithd := pod(), m.must("systemctl", "show", "-P", "MainPID", "kithd")
		const mark = "/var/lib/kith/k8s/version"
		m.must("cp", "-p", mark, "/root/version")
		m.must("sed", "-i", "s/^KUBERNETES=.*/KUBERNETES=1.99/", mark)
		out, err := m.try("apt-get", "install", "-y", "--allow-downgrades", debs[older])
		if err == nil || !strings.Contains(out, "Kubernetes does not go back to an older minor version. Nothing was changed: install a Kith with Kubernetes 1.99") {
			t.Errorf("%v: %s", err, out)
		}
		m.must("mv", "/root/version", mark)
		if is := version(); is != newer+" install ok installed" {
			t.Error(is)
		}
		works()
		if is := m.must("systemctl", "show", "-P", "MainPID", "kithd"); is != kithd {
			t.Errorf("kithd was %s, is %s", kithd, is)
		}
		if is := pod(); is != was {
			t.Errorf("the pod was %s, is %s", was, is)
		}
	})
	step("back to an older one that can read it, and up again, under the same pod", func(*testing.T) {
		for _, to := range []string{older, newer} {
			m.under(func() { m.must("apt-get", "install", "-y", "--allow-downgrades", "--no-install-recommends", debs[to]) })
		}
	})
	var last string
	step("removed, nothing runs, and its data stay", func(t *testing.T) {
		last = pod()
		m.must("apt-get", "remove", "-y", "kith")
		if out, err := m.try("pgrep", "-fa", "/kith/|/kith-tray|/pause|echo serve"); err == nil {
			t.Error("running:", out)
		}
		m.must("test", "-d", "/var/lib/kith/identity")
		m.must("test", "-f", "/etc/kith/config.yaml")
		const mark = "/var/lib/kith/version"
		m.must("cp", "-p", mark, "/root/version")
		m.must("sed", "-i", "s/^LAYOUT=.*/LAYOUT=99/", mark)
		out, err := m.try("apt-get", "install", "-y", "--no-install-recommends", debs[newer])
		if err == nil || !strings.Contains(out, "does not know its layout. Nothing was changed: ") {
			t.Errorf("over data of a layout to come: %v: %s", err, out)
		}
		if is := version(); !strings.HasSuffix(is, " ok config-files") {
			t.Error(is)
		}
		m.must("mv", "/root/version", mark)
	})
	step("installed again, it goes on", func(*testing.T) {
		install(newer)
		works()
		podReady(last)
	})
	step("purged, the machine is as it was", func(t *testing.T) {
		// That the lists show what Kith makes of a machine, they show while it is there.
		there := m.snapshot()
		for what, was := range before {
			if slices.Equal(there[what], was) {
				t.Errorf("%s: as they were without Kith", what)
			}
		}
		m.must("apt-get", "purge", "-y", "kith")
		m.same(before)
	})
}

// states are what a machine consists of, each with the command that lists it.
var states = map[string]string{
	// Not logs, nor what apt and dpkg remember.
	"files": `find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /root -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \
		-o -path /var/lib/systemd -o -path /var/tmp \) -prune -o -printf '%y %m %u %g %p %l\n'`,
	"run":       `find /run -xdev \( -path /run/systemd -o -path /run/udev -o -path /run/log -o -path /run/credentials \) -prune -o -printf '%y %p\n'`,
	"contents":  `find /etc -type f ! -name '*-' ! -name .updated ! -name ld.so.cache -exec sha256sum {} +`,
	"cgroups":   `find /sys/fs/cgroup -type d | grep -v 'systemd-.*\.service\|user.slice\|\.scope\|apt\|dpkg\|\.mount'`,
	"mounts":    `awk '{ print $1, $2, $3 }' /proc/mounts | grep -v /run/credentials`,
	"links":     `ip -o link | awk '{ print $2 }'`,
	"addresses": `ip -o address | awk '{ print $2, $4 }'`,
	"rules":     `ip rule; ip -6 rule; nft list ruleset`,
	"routes":    `ip route show table all; ip -6 route show table all`,
	"processes": `ps -eo args --no-headers | grep -v '^\[\|^ps \|^sh -c\|^grep\|systemd-\(hostnamed\|timedated\|localed\)\|^(sd-pam)\|--user'`,
	"sockets":   `awk 'NR > 1 && $8 ~ /^\// { print $8 }' /proc/net/unix`,
}

var changing = regexp.MustCompile(`(?m)^.*(/run/(initctl|utmp|motd|settings)|systemd/(private|notify)).*$\n?`)

func (m *machine) snapshot() map[string][]string {
	m.t.Helper()
	all := map[string][]string{}
	for what, command := range states {
		out, _ := m.try("sh", "-c", command)
		lines := strings.Split(strings.TrimSpace(changing.ReplaceAllString(out, "")), "\n")
		slices.Sort(lines)
		all[what] = slices.Compact(lines)
	}
	return all
}

// same waits until the machine is as it was.
func (m *machine) same(before map[string][]string) {
	m.t.Helper()
	m.eventually(10*time.Second, "nothing is left", func() error { // systemd takes away cgroups a moment later
		after := m.snapshot()
		var all []error
		for what, was := range before {
			for _, line := range after[what] {
				if !slices.Contains(was, line) {
					all = append(all, fmt.Errorf("%s: left: %s", what, line))
				}
			}
			for _, line := range was {
				if !slices.Contains(after[what], line) {
					all = append(all, fmt.Errorf("%s: missing: %s", what, line))
				}
			}
		}
		return errors.Join(all...)
	})
}

// speak asks a server again and again on one connection. What it gives ends that, and says how many answers there were.
func (m *machine) speak(address string) func() (int, error) {
	m.t.Helper()
	conn, err := m.dial(address)
	if err != nil {
		m.t.Fatal(err)
	}
	var (
		stop    = make(chan struct{})
		running sync.WaitGroup
		answers int
		broke   error
	)
	running.Go(func() {
		defer conn.Close()
		from := bufio.NewReader(conn)
		for {
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			if _, broke = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: echo\r\n\r\n"); broke != nil {
				return
			}
			answer, err := http.ReadResponse(from, nil)
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
			}
			if broke = err; broke != nil {
				return
			}
			answers++
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() (int, error) {
		close(stop)
		running.Wait()
		return answers, broke
	}
}
