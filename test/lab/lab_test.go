package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/test/lab/cgroups"
)

// build compiles what the laptops of these tests run, once: kith-lab, and as daemon the echo server of test/images,
// which answers on TCP 8080 and UDP 9999.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kith-lab-test-")
	if err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{"kith-lab": "kith.dev/cmd/kith-lab", "app": "kith.dev/test/images/echo"} {
		c := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
	}
	return dir, nil
})

// machine is the mount namespace the tests began in.
var machine, _ = os.Readlink("/proc/self/ns/mnt")

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := build(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// newLab is a lab of echo servers that is gone after the test.
func newLab(t *testing.T, n int, change ...func(*Options)) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for namespaces")
	}
	t.Parallel()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Name: "t-" + strings.ToLower(rand.Text()[:8]), Laptops: n, NoEngine: true, Bin: bin,
		Daemon: []string{filepath.Join(bin, "app"), "serve"},
	}
	for _, c := range change {
		c(&o)
	}
	t.Cleanup(func() {
		if err := Down(context.Background(), o.Name); err != nil {
			t.Error(err)
		}
		assertGone(t, o.Name)
	})
	l, err := Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// assertGone looks for anything that a lab leaves on a machine.
func assertGone(t *testing.T, name string) {
	t.Helper()
	hs, err := cgroups.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := cgroups.Find(hs, "kith-lab."+name+"."); len(left) > 0 {
		t.Error("cgroups left:", left)
	}
	if b, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(b), name) {
		t.Error("mounts left:\n", string(b))
	}
	for _, d := range []string{"/run/kith-lab/", "/var/lib/kith-lab/"} {
		if _, err := os.Stat(d + name); err == nil {
			t.Error("directory left:", d+name)
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if b, _ := os.ReadFile(p); strings.Contains(string(b), "/"+name+"/") {
			t.Errorf("process left: %s %q", p, b)
		}
	}
}

// ask sends a request from one laptop to the echo server of another, and gives it a second.
func ask(t *testing.T, from, to *Laptop, path string) (map[string]any, error) {
	t.Helper()
	a, err := to.Address()
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}}
	r, err := c.Get("http://" + netip.AddrPortFrom(a, 8080).String() + path)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var m map[string]any
	return m, json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&m)
}

func mustReach(t *testing.T, from, to *Laptop) {
	t.Helper()
	m, err := ask(t, from, to, "/")
	// A daemon that was just started may not listen yet.
	for end := time.Now().Add(3 * time.Second); err != nil && time.Now().Before(end); m, err = ask(t, from, to, "/") {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("%s to %s: %v", from.name, to.name, err)
	}
	a, _ := from.Address()
	if m["name"] != to.name || !strings.HasPrefix(m["client"].(string), a.String()+":") {
		t.Fatalf("%s asked %s and got %v", from.name, to.name, m)
	}
}

func mustTimeOut(t *testing.T, from, to *Laptop) {
	t.Helper()
	_, err := ask(t, from, to, "/")
	var e net.Error
	if !errors.As(err, &e) || !e.Timeout() {
		t.Fatalf("%s to %s: %v, want a silent timeout", from.name, to.name, err)
	}
}

func TestLaptopsAreApartAndReachEachOther(t *testing.T) {
	l := newLab(t, 3)
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	mustReach(t, alice, bob)
	mustReach(t, bob, l.Laptop("carol"))

	out, _, err := alice.Exec(t.Context(), "sh", "-ec", `
		hostname; cat /etc/hostname; cat /etc/kith/config.yaml; getent group kith | cut -d: -f1
		for f in /etc /usr/local /opt /root /tmp /var/lib /var/log /run; do echo mine > $f/of-alice; done
		stat -c %a /tmp /var/tmp; ls /sys/class/net | tr '\n' ' '; ls -d /proc/[0-9]* | wc -l`)
	if err != nil {
		t.Fatal(err)
	}
	if want := "alice\nalice\nengine: none\nname: alice\nkith\n1777\n1777\neth0 lo "; !strings.HasPrefix(out, want) {
		t.Errorf("alice sees\n%s\nwant\n%s", out, want)
	}
	for _, f := range []string{"/etc", "/usr/local", "/opt", "/root", "/tmp", "/var/lib", "/var/log", "/run"} {
		if _, err := os.Stat(f + "/of-alice"); err == nil {
			t.Errorf("what alice wrote in %s is on the machine", f)
		}
		if _, err := os.Stat(bob.Path(f + "/of-alice")); err == nil {
			t.Errorf("what alice wrote in %s is at bob", f)
		}
	}
}

func TestMulticastReachesEveryone(t *testing.T) {
	l := newLab(t, 3)
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: 5353}
	got := make(chan string, 2)
	for _, name := range []string{"bob", "carol"} {
		var c *net.UDPConn
		if err := l.Laptop(name).InNetwork(func() error {
			eth, err := net.InterfaceByName(device)
			if err == nil {
				c, err = net.ListenMulticastUDP("udp4", eth, group)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			buf := make([]byte, 100)
			_ = c.SetDeadline(time.Now().Add(3 * time.Second))
			n, _ := c.Read(buf)
			got <- name + " " + string(buf[:n])
		}()
	}
	c, err := l.Laptop("alice").Dial(t.Context(), "udp4", group.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "who is there")
	for range 2 {
		if s := <-got; !strings.HasSuffix(s, " who is there") {
			t.Errorf("received: %s", s)
		}
	}
}

func TestACommandKeepsInputOutputAndStatus(t *testing.T) {
	l := newLab(t, 1)
	alice := l.Laptop("alice")
	out, _, err := alice.ExecInput(t.Context(), strings.NewReader("in"), "sh", "-c", "cat; echo err >&2; exit 7")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || out != "in" || !strings.Contains(err.Error(), "err") {
		t.Errorf("got %q, %v", out, err)
	}
	if _, _, err := alice.Exec(t.Context(), "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("unknown program: %v", err)
	}
	if _, _, err := l.Laptop("zoe").Exec(t.Context(), "true"); err == nil || !strings.Contains(err.Error(), "alice") {
		t.Errorf("unknown laptop: %v, want an error that names those there are", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, _, err := alice.Exec(ctx, "sleep", "60"); err == nil || time.Since(begin) > 5*time.Second {
		t.Errorf("a command outlived its context: %v after %v", err, time.Since(begin))
	}
}

func TestManyCommandsAtOnce(t *testing.T) {
	l := newLab(t, 2)
	var g sync.WaitGroup
	for i := range 40 {
		p := l.Laptops()[i%2]
		g.Go(func() {
			out, _, err := p.Exec(t.Context(), "sh", "-c", "hostname; cat /proc/1/cmdline")
			if err != nil || !strings.HasPrefix(out, p.name+"\nkith-lab") {
				t.Errorf("in %s: %q, %v", p.name, out, err)
			}
		})
	}
	g.Wait()
	// No thread of ours may stay in a laptop, the main thread least of all.
	home, _ := os.Readlink("/proc/self/ns/mnt")
	threads, _ := filepath.Glob("/proc/self/task/*/ns/mnt")
	eventually(t, 3*time.Second, func() bool {
		for _, f := range threads {
			if ns, err := os.Readlink(f); err == nil && ns != home {
				return false
			}
		}
		return home == machine
	})
}

func TestDaemonIsKeptAsSystemdDoes(t *testing.T) {
	l := newLab(t, 1)
	alice, ctx := l.Laptop("alice"), t.Context()
	daemon := func() (pid string, i Info) {
		t.Helper()
		i, err := alice.Info()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(filepath.Join(alice.state, "status.json"))
		var s struct{ PID int }
		_ = json.Unmarshal(b, &s)
		return fmt.Sprint(s.PID), i
	}
	mustReach(t, alice, alice) // so that it has written to its log
	first, _ := daemon()
	// What the daemon started, or is in its session, lives on when it dies (KillMode=process).
	if _, _, err := alice.Exec(ctx, "sh", "-c", "sleep 600 & echo $!"); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatal(err)
	}
	if err := alice.KillDaemon(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, func() bool { p, i := daemon(); return i.Daemon == "running" && p != first && i.Restarts == 1 })
	mustReach(t, alice, alice)
	second, _ := daemon()
	if err := alice.RestartDaemon(ctx); err != nil {
		t.Fatal(err)
	}
	mustReach(t, alice, alice)
	if p, i := daemon(); i.Daemon != "running" || p == second || i.LastExit != "exit status 0" {
		t.Errorf("after restart: %+v, pid %s then %s", i, second, p)
	}
	if err := alice.StopDaemon(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	if p, i := daemon(); i.Daemon != "stopped" || p != "0" {
		t.Errorf("a daemon that was stopped: %+v", i)
	}
	if err := alice.StartDaemon(ctx); err != nil {
		t.Fatal(err)
	}
	mustReach(t, alice, alice)
	if out, _, err := alice.Exec(ctx, "sh", "-c", "cat /proc/[0-9]*/comm"); err != nil || !strings.Contains(out, "sleep") {
		t.Errorf("the child is gone: %v, %v", out, err)
	}
	var log strings.Builder
	if err := alice.Logs(ctx, &log, "kithd", false); err != nil || strings.Count(log.String(), "listens on") != 4 {
		t.Errorf("log %v:\n%s", err, log.String())
	}
}

func TestUpAgainAddsWhatIsMissing(t *testing.T) {
	l := newLab(t, 2)
	ctx := t.Context()
	before, _ := l.Laptop("alice").Info()
	if err := l.Laptop("bob").Kill(ctx); err != nil {
		t.Fatal(err)
	}
	bin, _ := build()
	if _, err := Up(ctx, Options{Name: l.name, Laptops: 3, NoEngine: true, Bin: bin, Daemon: []string{bin + "/app"}}); err != nil {
		t.Fatal(err)
	}
	after, _ := l.Laptop("alice").Info()
	if before.PID != after.PID {
		t.Error("alice was restarted")
	}
	mustReach(t, l.Laptop("bob"), l.Laptop("carol"))
}

func TestUpSaysWhyALaptopIsNotReady(t *testing.T) {
	l := newLab(t, 1, func(o *Options) {
		o.Daemon = []string{"/bin/sh", "-c", "echo no port 6450 left; exit 3"}
		o.NoWait = true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err := l.WaitReady(ctx, nil)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no port 6450 left") {
		t.Errorf("got %v, want the exit status and the log", err)
	}
}

func TestLabsOfTwoNamesDoNotMeet(t *testing.T) {
	l := newLab(t, 1)
	bin, _ := build()
	other := l.name + "-b"
	t.Cleanup(func() {
		if err := Down(context.Background(), other); err != nil {
			t.Error(err)
		}
		assertGone(t, other)
	})
	m, err := Up(t.Context(), Options{Name: other, Laptops: 2, NoEngine: true, Bin: bin, Daemon: []string{bin + "/app"}})
	if err != nil {
		t.Fatal(err)
	}
	mustReach(t, m.Laptop("alice"), m.Laptop("bob"))
	if _, err := ask(t, l.Laptop("alice"), m.Laptop("bob"), "/"); err == nil {
		t.Error("alice of one lab reaches bob of the other")
	}
	if err := l.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustReach(t, m.Laptop("alice"), m.Laptop("bob"))
}

// A crash of kith-lab at any point leaves some of: processes, cgroups, directories. Down must need none of its notes.
func TestDownNeedsNoNotes(t *testing.T) {
	l := newLab(t, 2)
	if err := l.Laptop("bob").Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{l.state, l.disks} {
		if err := os.RemoveAll(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := Down(t.Context(), l.name); err != nil {
		t.Fatal(err)
	}
	assertGone(t, l.name)
}

func eventually(t *testing.T, within time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within", within)
		}
	}
}
