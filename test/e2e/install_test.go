//go:build lab

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// systemd makes a laptop's only daemon the real one, in a PID namespace of its own, where it is the first process. It knows
// the installed units and what they lean on, and none of the machine's; of what it would set for the whole kernel it gets to
// see files (fs.file-max), or is told that this is a container (core_pattern, hardware).
const systemd = `
mkdir -p /run/units/kithd.service.d
for target in sysinit basic shutdown multi-user network nss-user-lookup; do
	printf '[Unit]\nDescription=%s\n' $target >/run/units/$target.target
done
printf '[Service]\nStandardOutput=append:/var/log/kith/kithd.log\nStandardError=inherit\n' >/run/units/kithd.service.d/log.conf
mkdir -p /var/log/kith
exec unshare --pid --mount --fork --kill-child sh -ec '
	mount -t proc -o nosuid,nodev,noexec proc /proc
	for file in /run/sysctl-*; do
		name=$(echo "${file#/run/sysctl-}" | tr - /)
		[ ! -e /proc/sys/$name ] || mount --bind $file /proc/sys/$name
	done
	mount --bind /proc/sys/fs /proc/sys/fs
	mount -o remount,bind,ro /proc/sys/fs
	mount --make-rshared /
	exec env -i container=lab SYSTEMD_UNIT_PATH=/run/units:/usr/local/lib/systemd/system SYSTEMD_GENERATOR_PATH=/run/none \
		/lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=no
'
`

// TestAnInstalledKithIsAService: what `make install` puts on a laptop is all it takes, and what the command line says about
// the service is so. systemctl starts, restarts and stops kithd; containers never notice.
func TestAnInstalledKithIsAService(t *testing.T) {
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		t.Skip("this machine has no systemd to run in the laptop")
	}
	tree := filepath.Join(t.TempDir(), "tree")
	install := exec.Command("../../scripts/install.sh", "install")
	install.Env = append(os.Environ(), "DESTDIR="+tree)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l := laptops(t, lab.Options{Laptops: 1, NoWait: true, Daemon: []string{"/bin/sh", "-ec", systemd}})
	alice := l.Laptop("alice")
	// inside runs a command in the namespaces of that systemd, with the PATH of a login and none of the lab's programs on it.
	inside := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := alice.Run(t.Context(), lab.Command{
			Args:   append([]string{"sh", "-c", `exec nsenter -t $(pidof -s systemd) -m -p -- env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"`, "sh"}, args...),
			Stdout: &out, Stderr: &out,
		})
		return out.String(), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := inside(args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	eventually(t, 10*time.Second, "systemd is up", func() string {
		out, _ := inside("systemctl", "is-active", "multi-user.target")
		if out != "active\n" {
			return instead(out)
		}
		return ""
	})
	unpack(t, alice, tree)
	script, err := os.ReadFile("../../packaging/after-install.sh")
	if err != nil {
		t.Fatal(err)
	}
	must("groupdel", "kith") // the lab's own
	must("sh", "-ec", string(script))
	must("getent", "group", "kith")

	// What a stranger does: he asks, and does as he is told.
	out, err := inside("kith", "status")
	if err == nil || !strings.Contains(out, "kithd is not running") || !strings.Contains(out, "start it: sudo systemctl start kithd;") {
		t.Fatalf("%v\n%s", err, out)
	}
	must("systemctl", "start", "kithd")
	must("kith", "status") // at once
	if out := must("sh", "-c", "readlink /proc/$(systemctl show -P MainPID kithd)/exe; stat -c '%U %G %a' /run/kith/kith.sock"); out != "/usr/local/libexec/kith/kithd\nroot kith 660\n" {
		t.Error(out)
	}
	eventually(t, time.Minute, "the node is Ready", func() string {
		out, err := inside("kith-k8s", "kubectl", "get", "node", "alice", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Sprintf("%v %q", err, out)
		}
		return ""
	})
	eventually(t, 30*time.Second, "a pod can be made", func() string {
		out, err := inside("kith-k8s", "kubectl", "run", "echo", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent")
		if err != nil {
			return instead(out)
		}
		return ""
	})
	must("kith-k8s", "kubectl", "wait", "--for=condition=Ready", "pod/echo", "--timeout=3m")
	life := func() string {
		t.Helper()
		return must("kith-k8s", "kubectl", "get", "pod", "echo", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.podIP}")
	}
	before := life()
	for _, program := range []string{"kith-k8s", "containerd", "containerd-shim-runc-v2"} {
		if exe := must("sh", "-c", "readlink /proc/$(pidof -s "+program+")/exe"); exe != "/usr/local/libexec/kith/"+program+"\n" {
			t.Errorf("%s runs from %s", program, exe)
		}
	}
	engine := must("pidof", "kith-k8s")

	t.Run("a restart is of kithd alone", func(t *testing.T) {
		was := must("systemctl", "show", "-P", "MainPID", "kithd")
		must("systemctl", "restart", "kithd")
		must("kith", "status")
		if is := must("systemctl", "show", "-P", "MainPID", "kithd"); is == was {
			t.Error("kithd was not restarted")
		}
		if is := must("pidof", "kith-k8s"); is != engine {
			t.Errorf("kith-k8s was %s, is %s", engine, is)
		}
		if is := life(); is != before {
			t.Errorf("the pod was %s, is %s", before, is)
		}
	})
	t.Run("stopped, pods run on, and the next start takes them over", func(t *testing.T) {
		must("systemctl", "stop", "kithd")
		if result := must("systemctl", "show", "-P", "Result", "kithd"); result != "success\n" { // "timeout" when it had to be killed
			t.Errorf("kithd stopped with the result %q", result)
		}
		if out, err := inside("kith", "status"); err == nil || !strings.Contains(out, "sudo systemctl start kithd") {
			t.Errorf("%v: %s", err, out)
		}
		address := strings.Fields(before)[2]
		if out, err := inside("curl", "-sS", "--max-time", "60", "http://"+address+":8080/"); err != nil {
			t.Errorf("the pod does not answer: %v: %s", err, out)
		}
		must("systemctl", "start", "kithd")
		eventually(t, 20*time.Second, "it is ready again", func() string {
			if out, err := inside("kith", "status"); err != nil || !strings.Contains(out, "ready") {
				return fmt.Sprintf("%v %q", err, out)
			}
			return ""
		})
		if is := must("pidof", "kith-k8s"); is != engine {
			t.Errorf("kith-k8s was %s, is %s", engine, is)
		}
		if is := life(); is != before {
			t.Errorf("the pod was %s, is %s", before, is)
		}
	})
	t.Run("killed, it is back", func(t *testing.T) {
		must("systemctl", "kill", "--kill-who=main", "--signal=SIGKILL", "kithd")
		eventually(t, 10*time.Second, "kithd is back", func() string {
			out, err := inside("kith", "status")
			if err != nil {
				return instead(out)
			}
			return ""
		})
	})
	t.Run("what is not understood is said once", func(t *testing.T) {
		must("sh", "-c", "echo 'nonsense: true' >>/etc/kith/config.yaml")
		out, err := inside("systemctl", "restart", "kithd")
		if err == nil {
			t.Errorf("restarted: %s", out)
		}
		time.Sleep(3 * time.Second) // as long as three more tries would have taken
		for property, want := range map[string]string{"ActiveState": "failed", "ExecMainStatus": "78", "NRestarts": "0"} {
			if is := strings.TrimSpace(must("systemctl", "show", "kithd", "--value", "-p", property)); is != want {
				t.Errorf("%s=%s, want %s", property, is, want)
			}
		}
		if is := must("pidof", "kith-k8s"); is != engine {
			t.Errorf("kith-k8s was %s, is %s", engine, is)
		}
		must("sed", "-i", "/nonsense/d", "/etc/kith/config.yaml")
		must("systemctl", "start", "kithd")
		must("kith", "status")
	})
	t.Run("before it is removed, it stops and starts no more", func(t *testing.T) {
		must("systemctl", "enable", "kithd")
		script, err := os.ReadFile("../../packaging/before-remove.sh")
		if err != nil {
			t.Fatal(err)
		}
		must("sh", "-ec", string(script))
		for _, ask := range []string{"is-enabled", "is-active"} {
			if out, err := inside("systemctl", ask, "kithd"); err == nil {
				t.Errorf("%s: %s", ask, out)
			}
		}
	})
}

// unpack puts a tree onto a laptop's own disk.
func unpack(t *testing.T, p *lab.Laptop, tree string) {
	t.Helper()
	pack := exec.Command("tar", "-C", tree, "-c", ".")
	packed, err := pack.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := pack.Start(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.ExecInput(t.Context(), packed, "tar", "-C", "/", "--no-same-owner", "--no-overwrite-dir", "-x"); err != nil {
		t.Fatal(err)
	}
	if err := pack.Wait(); err != nil {
		t.Fatal(fmt.Errorf("pack %s: %w", tree, err))
	}
}
