//go:build lab

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// nameServers are what a company has: Knot DNS with the zone corp.example, at 192.0.2.2, and Unbound, which keeps what it was told, at the
// address that is in the laptops' resolv.conf.
type nameServers struct {
	t      *testing.T
	lan    *lab.Laptop
	dir    string
	serial int
}

func newNameServers(t *testing.T, l *lab.Lab) *nameServers {
	t.Helper()
	s := &nameServers{t: t, lan: l.Laptop("lan"), dir: t.TempDir()}
	write := func(name, text string) string {
		path := filepath.Join(s.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	knot := write("knot.conf", fmt.Sprintf(`server:
  rundir: %[1]s
  listen: 192.0.2.2@53
database:
  storage: %[1]s
log:
- target: stderr
  any: notice
acl:
- id: lan
  address: 192.0.2.0/24
  action: update
template:
- id: default
  storage: %[1]s
  zonefile-sync: -1
  zonefile-load: whole
zone:
- domain: corp.example
  file: corp.zone
  acl: lan
`, s.dir))
	unbound := write("unbound.conf", `server:
  interface: 192.0.2.1
  access-control: 192.0.2.0/24 allow
  chroot: ""
  username: ""
  directory: "`+s.dir+`"
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  num-threads: 1
  module-config: "iterator"
stub-zone:
  name: corp.example
  stub-addr: 192.0.2.2
`)
	s.write("")
	if _, _, err := s.lan.Exec(t.Context(), "ip", "address", "add", "192.0.2.2/24", "dev", "br0"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"knotd", "-c", knot}, {"unbound", "-c", unbound}} {
		go func() { // it ends with the lab
			var said strings.Builder
			_ = s.lan.Run(context.WithoutCancel(t.Context()), lab.Command{Args: args, Stdout: &said, Stderr: &said})
			if t.Context().Err() == nil {
				t.Errorf("%s ended: %s", args[0], said.String())
			}
		}()
	}
	eventually(t, 10*time.Second, "the name servers answer", func() string {
		out, _, err := s.lan.Exec(t.Context(), "kdig", "+short", "+timeout=1", "+retry=0", "@192.0.2.1", "SOA", "corp.example")
		if err != nil || !strings.Contains(out, "ns.corp.example.") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	return s
}

// write puts records into the zone file.
func (s *nameServers) write(records string) {
	s.t.Helper()
	s.serial += 100 // an update in between counts too
	zone := fmt.Sprintf(`$ORIGIN corp.example.
@ 5 IN SOA ns hostmaster %d 60 60 3600 5
@ 60 IN NS ns
ns 60 IN A 192.0.2.2
* 60 IN TXT "v=spf1 -all"
%s`, s.serial, records)
	if err := os.WriteFile(filepath.Join(s.dir, "corp.zone"), []byte(zone), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// serve has the zone be these records.
func (s *nameServers) serve(records string) {
	s.t.Helper()
	s.write(records)
	if out, _, err := s.lan.Exec(s.t.Context(), "knotc", "-s", filepath.Join(s.dir, "knot.sock"), "-b", "zone-reload", "corp.example"); err != nil {
		s.t.Fatalf("%v %s", err, out)
	}
}

// update sends the zone what is printed for nsupdate.
func (s *nameServers) update(text string) {
	s.t.Helper()
	if out, _, err := s.lan.ExecInput(s.t.Context(), strings.NewReader("server 192.0.2.2\n"+text), "knsupdate"); err != nil {
		s.t.Fatalf("%v %s of\n%s", err, out, text)
	}
}

// TestFoundByNameWhereNoMulticastLeads: bob is in another part of the building. What his own program prints goes into the company's zone;
// alice finds him by it, through a resolver that keeps what it was told, peers with him, and follows him when he moves.
func TestFoundByNameWhereNoMulticastLeads(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"discovery": map[string]any{"dnsDomains": []string{"corp.example"}}}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	lan := l.Laptop("lan")
	if _, _, err := lan.Exec(t.Context(), "nft", "add table bridge apart; add chain bridge apart forward { type filter hook forward priority 1; }; add rule bridge apart forward meta pkttype multicast drop"); err != nil {
		t.Fatal(err)
	}
	s := newNameServers(t, l)
	for _, p := range l.Laptops() { // they may have met before
		if err := p.RestartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "alice is ready", func() string { return engineReady(t, alice) })
	sees := func() string {
		if p := peerOf(t, alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	}
	if p := peerOf(t, alice, "bob"); p.Name != "" {
		t.Fatalf("alice sees bob without any name: %+v", p)
	}
	out, err := alice.Kith(t.Context(), "peer", "add", "bob.corp.example")
	if want := "bob.corp.example leads to no address"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "A bob.corp.example: name server 192.0.2.1 knows none") {
		t.Errorf("an unknown name: %v, %s", err, out)
	}
	if _, err := alice.Kith(t.Context(), "peer", "add", "alice.nowhere.example:99999"); err == nil {
		t.Error("a port that is none passes")
	}

	records := func(args ...string) string {
		return kith(t, bob, append([]string{"dns-records", "corp.example", "--ttl", "10s"}, args...)...)
	}
	eventually(t, 20*time.Second, "kithd of bob is there", func() string {
		if _, err := bob.Kith(t.Context(), "version"); err != nil {
			return err.Error()
		}
		return ""
	})
	first := records()
	t.Logf("bob's records:\n%s", first)
	s.serve(first)
	found := eventually(t, 20*time.Second, "alice finds bob", sees)
	if p := peerOf(t, alice, "bob"); p.Source != "dns" {
		t.Errorf("found by %q", p.Source)
	}

	s.serve("")
	gone := eventually(t, 25*time.Second, "bob is not named any more", func() string {
		if p := peerOf(t, alice, "bob"); p.Name != "" {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})

	somebody := identity.ID{1, 2, 3}
	all := kith(t, bob, "dns-records", "all.corp.example")
	other := regexp.MustCompile(`"id=[^"]*`).ReplaceAllString(kith(t, bob, "dns-records", "all.corp.example", "--host", "carol"), `"id=`+somebody.Compact())
	s.serve(first + all + other)
	_, err = alice.Kith(t.Context(), "peer", "add", "all.corp.example")
	if err == nil || !strings.Contains(err.Error(), "names several clusters: bob.all.corp.example (") || !strings.Contains(err.Error(), "carol.all.corp.example ("+somebody.Short()+")") {
		t.Errorf("a domain of two: %v", err)
	}
	t.Log(err)
	if out := kith(t, alice, "peer", "add", "bob.corp.example"); !strings.Contains(out, "found bob") {
		t.Error(out)
	}
	befriend(t, alice, bob, "--cpu", "100m", "--memory", "64Mi", "--pods", "5")
	if p := peerOf(t, alice, "bob"); !p.Tunnel.Up {
		t.Errorf("no tunnel: %+v", p)
	}

	to, err := bob.Move(t.Context(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	var second string
	eventually(t, 10*time.Second, "bob knows where he is", func() string {
		if second = records(); !strings.Contains(second, to.String()) {
			return instead(second)
		}
		return ""
	})
	s.update(kith(t, bob, "dns-records", "corp.example", "--ttl", "10m", "--format", "nsupdate"))
	moved := eventually(t, 30*time.Second, "alice reaches bob at his new address", func() string {
		p := peerOf(t, alice, "bob")
		if !p.Reachable || p.Addresses[0] != to.String()+":6450" || !p.Tunnel.Up {
			return fmt.Sprintf("%+v, want %s", p, to)
		}
		return ""
	})

	// On another network is another resolver, which has not heard yet what holds for ten minutes.
	s.serve(strings.ReplaceAll(second, to.String(), "192.0.2.222"))
	if _, _, err := alice.ExecInput(t.Context(), strings.NewReader("nameserver 192.0.2.2\n"), "sh", "-c", "cat > /etc/resolv.conf.new && mv /etc/resolv.conf.new /etc/resolv.conf"); err != nil {
		t.Fatal(err)
	}
	heard := eventually(t, 15*time.Second, "alice asks her new name server", func() string {
		if p := peerOf(t, alice, "bob"); !strings.Contains(strings.Join(p.Addresses, " "), "192.0.2.222") {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	t.Logf("found %s after the zone had him, gone %s after it had not, reached %s after his address changed there; another resolver is asked after %s", found, gone, moved, heard)
}
