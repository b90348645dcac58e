//go:build lab

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// planted is a fault that a laptop can have, and the name of the finding that must tell of it.
type planted struct {
	fault   string
	finding string
	plant   func()
	heal    func()
	mended  bool     // kith doctor --fix does it
	ask     []string // of kith doctor
}

// ufwAlone is a stand-in for ufw, which is not on every machine: it is active, lets ssh in, and keeps what it is told.
const ufwAlone = `#!/bin/sh
case $1 in
status) echo "Status: active"; echo "Default: deny (incoming), allow (outgoing), disabled (routed)"; echo
	echo "To                         Action      From"; echo "--                         ------      ----"; cat /usr/local/sbin/rules ;;
allow) echo "$2                   ALLOW IN    Anywhere" >> /usr/local/sbin/rules ;;
esac
`

// TestDoctorFindsEachPlantedFault plants twelve faults on a laptop, one after the other: the doctor tells each by its name, mends what
// is safe to be mended and says what it did, and finds nothing before, between and after.
func TestDoctorFindsEachPlantedFault(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 1})
	alice := l.Laptop("alice")
	run := func(script string) func() {
		return func() {
			t.Helper()
			if out, stderr, err := alice.Exec(t.Context(), "sh", "-ec", script); err != nil {
				t.Fatalf("%s: %v %s%s", script, err, out, stderr)
			}
		}
	}
	eventually(t, time.Minute, "alice is ready", func() string { return engineReady(t, alice) })
	well(t, alice)
	address, err := alice.Address()
	if err != nil {
		t.Fatal(err)
	}
	early := laterBy(t, alice, netip.AddrPortFrom(address, 7450), 10*time.Minute+30*time.Second)
	resolv := "cp /etc/resolv.conf /root/resolv.conf; echo nameserver 127.0.0.1 > /etc/resolv.conf"
	cgroup, cgroupBack := "umount -l /sys/fs/cgroup/pids", "mount -t cgroup -o nosuid,nodev,noexec,pids cgroup /sys/fs/cgroup/pids"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		cgroup, cgroupBack = "echo cpu io memory > /root/c; mount --bind /root/c /sys/fs/cgroup/cgroup.controllers", "umount /sys/fs/cgroup/cgroup.controllers"
	}
	var endPort func()
	for _, f := range []planted{
		{
			fault: "a port is taken", finding: "peer-api",
			plant: func() { endPort = takePort(t, alice) },
			heal: func() {
				endPort()
				if err := alice.StartDaemon(t.Context()); err != nil {
					t.Fatal(err)
				}
				eventually(t, time.Minute, "alice is ready", func() string { return engineReady(t, alice) })
			},
		},
		{fault: "TUN is missing", finding: "tun", plant: run("mount -t tmpfs tmpfs /dev/net"), heal: run("umount /dev/net"), mended: true},
		{fault: "multicast is filtered", finding: "multicast", plant: run("iptables -I INPUT -p udp --dport 5353 -j DROP"), heal: run("iptables -D INPUT -p udp --dport 5353 -j DROP")},
		{
			fault: "ufw blocks", finding: "ufw", mended: true,
			plant: run("mount -t tmpfs tmpfs /usr/local/sbin; cat > /usr/local/sbin/ufw <<'EOF'\n" + ufwAlone + "EOF\nchmod 755 /usr/local/sbin/ufw; echo '22/tcp  ALLOW IN  Anywhere' > /usr/local/sbin/rules"),
			heal:  run("umount /usr/local/sbin"),
		},
		{
			fault: "the clock is 10 minutes off", finding: "clock", ask: []string{"ahead"},
			plant: func() { kith(t, alice, "peer", "add", early) }, heal: func() { kith(t, alice, "forget", "ahead") },
		},
		{
			fault: "the MTU is 1280", finding: "mtu",
			plant: func() {
				if err := alice.SetMTU(t.Context(), 1280); err != nil {
					t.Fatal(err)
				}
			},
			heal: func() {
				if err := alice.SetMTU(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			},
		},
		{fault: "the LAN is in the pods' range", finding: "pod-range", plant: run("ip addr add 10.42.9.2/24 dev eth0"), heal: run("ip addr del 10.42.9.2/24 dev eth0")},
		{
			fault: "inotify is exhausted", finding: "inotify", mended: true, // in truth that would be the whole machine's: a limit that is too low, of this laptop alone
			plant: run("echo 8 > /root/i; mount --bind /root/i /proc/sys/fs/inotify/max_user_instances; echo 4096 > /root/w; mount --bind /root/w /proc/sys/fs/inotify/max_user_watches"),
			heal:  run("umount /proc/sys/fs/inotify/max_user_instances /proc/sys/fs/inotify/max_user_watches"),
		},
		{fault: "the socket is not the group's", finding: "socket", plant: run("chgrp root /run/kith/kith.sock"), heal: run("chgrp kith /run/kith/kith.sock"), mended: true},
		{fault: "a cgroup controller is missing", finding: "cgroup", plant: run(cgroup), heal: run(cgroupBack)},
		{fault: "the DNS of the laptop points at itself", finding: "resolver", plant: run(resolv), heal: run("cat /root/resolv.conf > /etc/resolv.conf")},
		// The last one: for a moment another disk lies over the one that is in use.
		{
			fault: "the disk is full at 99 %", finding: "space",
			plant: run("mount -t tmpfs -o size=1g tmpfs /var/lib/kith; fallocate -l 1014m /var/lib/kith/filler"), heal: run("umount /var/lib/kith"),
		},
	} {
		t.Run(f.fault, func(t *testing.T) {
			f.plant()
			defer f.heal()
			found, err := examine(t, alice, f.ask...)
			i := slices.IndexFunc(found, func(n api.Finding) bool { return n.Name == f.finding && n.State != api.CheckOK })
			if i < 0 {
				t.Fatalf("%s is not found (%v):\n%s", f.finding, err, strings.Join(notOK(found), "\n"))
			}
			t.Logf("%s: %s; %s; %s", f.finding, found[i].What, found[i].Why, found[i].Do)
			if found[i].Do == "" || found[i].State == api.CheckFail && err == nil {
				t.Errorf("it says too little, or does not fail: %+v, %v", found[i], err)
			}
			if can := len(found[i].Fix) > 0; can != f.mended {
				t.Fatalf("can be mended: %t: %+v", can, found[i])
			}
			if !f.mended {
				return
			}
			var text bytes.Buffer
			err = alice.Run(t.Context(), lab.Command{Args: []string{"kith", "doctor", "--fix", "--yes", "-o", "json"}, Stdout: &text})
			var fixed []api.Fixed
			if jsonErr := json.Unmarshal(text.Bytes(), &fixed); err != nil || jsonErr != nil || len(fixed) != 1 || !fixed[0].Mended() || !slices.Equal(fixed[0].Did, found[i].Fix) {
				t.Errorf("it is not mended: %v %v %+v", err, jsonErr, fixed)
			}
			if found, _ := examine(t, alice); slices.ContainsFunc(found, func(n api.Finding) bool { return n.Name == f.finding && n.State != api.CheckOK }) {
				t.Errorf("it is still found: %s", strings.Join(notOK(found), "\n"))
			}
		})
		if t.Failed() || f.finding == "space" {
			break // what the node thinks of a disk that was full for a moment is not of interest
		}
		well(t, alice)
	}
	t.Run("what was mended is in the log", func(t *testing.T) {
		var log bytes.Buffer
		if err := alice.Logs(t.Context(), &log, "kithd", false); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"tun", "ufw", "inotify", "socket"} {
			if !strings.Contains(log.String(), "finding="+name) {
				t.Errorf("the log does not tell of %s", name)
			}
		}
	})
	t.Run("a bug report", func(t *testing.T) { reported(t, alice) })
}

// takePort has another program listen where kithd would. It gives what ends that.
func takePort(t *testing.T, p *lab.Laptop) (end func()) {
	t.Helper()
	if err := p.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, lab.Command{Args: []string{"kith-k8s", "kubectl", "proxy", "--port=6450"}})
	}()
	eventually(t, 20*time.Second, "the port is taken", func() string {
		c, err := p.Dial(t.Context(), "tcp", "127.0.0.1:6450")
		if err != nil {
			return err.Error()
		}
		c.Close()
		return ""
	})
	return func() { stop(); <-ended }
}

// laterBy has somebody answer as a Kith does, whose clock is ahead, and gives the address.
func laterBy(t *testing.T, p *lab.Laptop, at netip.AddrPort, ahead time.Duration) string {
	t.Helper()
	who, err := identity.Load(filepath.Join(t.TempDir(), "identity"))
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := p.InNetwork(func() (err error) { l, err = net.Listen("tcp", at.String()); return err }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{TLSConfig: who.ServerTLS(), ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(peering.Hello{Version: "v1", ID: who.ID(), Name: "ahead", Protocol: []string{peering.Protocol}})
	})}
	go server.ServeTLS(l, "", "")
	t.Cleanup(func() { server.Close() })
	return at.String()
}

// reported makes a bug report and looks for what must not be in it.
func reported(t *testing.T, p *lab.Laptop) {
	const secret = "zq3-pl4nted-s3cret"
	kubectl(t, p, "create", "secret", "generic", "planted", "--from-literal=a="+secret)
	kubectl(t, p, "create", "configmap", "planted", "--from-literal=a="+secret)
	// The kubelet says of a probe that it cannot run which command it was.
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(`apiVersion: v1
kind: Pod
metadata: {name: planted, annotations: {planted: "`+secret+`"}}
spec:
  containers:
  - name: echo
    image: "kith.dev/echo:1"
    imagePullPolicy: IfNotPresent
    command: ["/app", "serve"]
    env: [{name: PLANTED, value: "`+secret+`"}]
    livenessProbe: {exec: {command: ["/nothing", "-p`+secret+`"]}, periodSeconds: 1, failureThreshold: 1000}
---
apiVersion: v1
kind: Pod
metadata: {name: first-word}
spec: {containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, command: ["/`+secret+`", "serve"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: image}
spec: {containers: [{name: echo, image: "me:`+secret+`@registry.example/x:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: nfs}
spec:
  containers: [{name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, nfs: {server: 127.0.0.1, path: "/export/`+secret+`"}}]
`), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the log of the engine has the probe, the first word, the image and the volume", func() string {
		var log bytes.Buffer
		if err := p.Logs(t.Context(), &log, "k8s", false); err != nil {
			return err.Error()
		}
		for _, told := range []string{"-p" + secret, "stat /" + secret, "me:" + secret + "@registry.example", "127.0.0.1:/export/" + secret} {
			if !strings.Contains(log.String(), told) {
				return "the kubelet does not tell of " + told + " yet"
			}
		}
		return ""
	})
	key := kubectl(t, p, "config", "view", "--raw", "-o", "jsonpath={.users[0].user.client-key-data}")
	if len(key) < 40 {
		t.Fatalf("the kubeconfig has no key: %q", key)
	}
	kith(t, p, "bugreport", "--yes", "-o", "/root/report.tar.gz")
	f, err := os.Open(p.Path("/root/report.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s %d", h.Name, h.Size))
		for _, word := range []string{secret, key[:40], "BEGIN PRIVATE KEY", "BEGIN EC PRIVATE KEY", "Bearer ey"} {
			if bytes.Contains(text, []byte(word)) {
				t.Errorf("%s holds %q", h.Name, word)
			}
		}
		if bytes.Contains(text, []byte("not all of it is here")) {
			t.Errorf("%s: %.300s", h.Name, text)
		}
	}
	t.Log(strings.Join(names, "\n"))
	for _, name := range []string{"snapshot.json", "doctor.json", "objects/sharingpolicies.yaml", "cluster/pods.txt", "logs/kithd.log", "logs/engine.log", "network/nft.txt", "metrics.txt"} {
		if !slices.ContainsFunc(names, func(n string) bool {
			return strings.HasPrefix(n, "kith-bugreport/"+name) && !strings.HasSuffix(n, " 0")
		}) {
			t.Errorf("%s is missing, or empty", name)
		}
	}
}

// examine gives what kith doctor finds, and its error when something failed.
func examine(t *testing.T, p *lab.Laptop, args ...string) ([]api.Finding, error) {
	t.Helper()
	var out bytes.Buffer
	err := p.Run(t.Context(), lab.Command{Args: append([]string{"kith", "doctor", "-o", "json"}, args...), Stdout: &out})
	var found []api.Finding
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		t.Fatalf("%s: kith doctor -o json: %v\n%s", p.Name(), err, out.String())
	}
	return found, err
}

func notOK(found []api.Finding) (list []string) {
	for _, f := range found {
		if f.State != api.CheckOK {
			list = append(list, fmt.Sprintf("%s %s: %s (%s)", f.State, f.Name, f.Why, f.What))
		}
	}
	return list
}

// want holds what is not ok to these, in order: "state name: beginning of why".
func want(t *testing.T, found []api.Finding, begins ...string) {
	t.Helper()
	list := notOK(found)
	if !slices.EqualFunc(list, begins, strings.HasPrefix) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(begins, "\n"))
	}
}

// well waits until all is well.
func well(t *testing.T, p *lab.Laptop) {
	t.Helper()
	eventually(t, 60*time.Second, p.Name()+" is well again", func() string {
		found, _ := examine(t, p)
		return strings.Join(notOK(found), "\n")
	})
}
