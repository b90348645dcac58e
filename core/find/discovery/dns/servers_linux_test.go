package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
)

// output is what a program said, of one that runs still too.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// daemon runs a name server until the test ends, and waits until it answers at address.
func daemon(t *testing.T, address string, args ...string) {
	t.Helper()
	var said output
	c := exec.Command(args[0], args[1:]...)
	c.Stdout, c.Stderr = &said, &said
	must(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := exchangeOnce(t.Context(), address, "tcp", true, question{"corp.example.", dnsmessage.TypeSOA})
		var answers failure
		if err == nil || errors.As(err, &answers) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v\n%s", args[0], err, said.String())
		}
	}
}

// freePort is one of loopback that nobody has.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestOrdinaryServers asks those that people have: Knot DNS with a signed zone, Unbound that validates it, or finds it forged, dnsmasq in front
// of it, and dnsmasq with records of its own, as on a router.
func TestOrdinaryServers(t *testing.T) {
	for _, program := range []string{"knotd", "unbound", "dnsmasq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (scripts/deps.sh)", program)
		}
	}
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	bob, carol := testID("bob"), testID("carol")
	lab := Zone{ID: bob, Name: "bob", Host: "bob", Port: 6450, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, TTL: time.Minute}
	records, err := lab.Records()
	must(t, err)
	big := "" // a TXT set that no packet of 1232 bytes holds, in which the cluster's is one
	for i := range 20 {
		big += fmt.Sprintf("_kith._tcp.big IN TXT \"n=%d %s\" \"%s\"\n", i, strings.Repeat("x", 200), strings.Repeat("y", 200))
	}
	zone := "$ORIGIN corp.example.\n$TTL 60\n@ 60 IN SOA ns hostmaster 1 60 60 3600 30\n@ IN NS ns\nns IN A 127.0.0.1\n" + lines(records) +
		"* IN A 192.0.2.66\n* IN TXT \"v=spf1 -all\"\n" +
		"_kith._tcp.other IN CNAME _kith._tcp\nlink IN CNAME bob\n_kith._tcp.link IN SRV 0 0 6450 link\n_kith._tcp.link IN TXT \"v=1\" \"id=" + bob.Compact() + "\" \"name=J\\195\\182rg\"\n" +
		"_kith._tcp.big IN SRV 0 0 6450 big\nbig IN A 192.0.2.9\n_kith._tcp.big IN TXT \"v=1\" \"id=" + carol.Compact() + "\" \"name=carol\"\n" + big
	for i := range 300 {
		zone += fmt.Sprintf("_kith._tcp.many IN SRV 0 0 %d bob\n", 1000+i)
	}
	put("corp.zone", zone)
	knotPort := freePort(t)
	knot := "127.0.0.1:" + knotPort
	daemon(t, knot, "knotd", "-c", put("knot.conf", fmt.Sprintf("server:\n  rundir: %[1]s\n  listen: 127.0.0.1@%[2]s\ndatabase:\n  storage: %[1]s\npolicy:\n- id: signed\n  single-type-signing: on\n"+
		"template:\n- id: default\n  storage: %[1]s\n  zonefile-sync: -1\nzone:\n- domain: corp.example\n  file: corp.zone\n  dnssec-signing: on\n  dnssec-policy: signed\n", dir, knotPort)))
	keys, err := dns.ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("corp.example.", dns.TypeDNSKEY), knot)
	if err != nil || len(keys.Answer) == 0 {
		t.Fatalf("the zone is not signed: %v", err)
	}
	unbound := func(name string, key *dns.DNSKEY) string {
		port := freePort(t)
		daemon(t, "127.0.0.1:"+port, "unbound", "-c", put(name, fmt.Sprintf("server:\n  interface: 127.0.0.1\n  port: %s\n  chroot: \"\"\n  username: \"\"\n  directory: %q\n  pidfile: \"\"\n  use-syslog: no\n"+
			"  do-daemonize: no\n  num-threads: 1\n  do-not-query-localhost: no\n  module-config: \"validator iterator\"\n  trust-anchor: %q\nstub-zone:\n  name: corp.example\n  stub-addr: 127.0.0.1@%s\n",
			port, dir, strings.ReplaceAll(key.String(), "\t", " "), knotPort)))
		return "127.0.0.1:" + port
	}
	key := keys.Answer[0].(*dns.DNSKEY)
	forged := dns.Copy(key).(*dns.DNSKEY)
	forged.PublicKey = "AAAA" + forged.PublicKey[4:]
	front := freePort(t)
	daemon(t, "127.0.0.1:"+front, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=", "--pid-file=", "--listen-address=127.0.0.1", "--bind-interfaces",
		"--port="+front, "--server=/corp.example/127.0.0.1#"+knotPort)
	own := freePort(t)
	daemon(t, "127.0.0.1:"+own, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--user=", "--pid-file=", "--listen-address=127.0.0.1", "--bind-interfaces",
		"--port="+own, "--local=/corp.example/", "--srv-host=_kith._tcp.corp.example,bob.corp.example,6450,0,0", "--srv-host=_kith._tcp.bob.corp.example,bob.corp.example,6450,0,0",
		"--txt-record=_kith._tcp.bob.corp.example,v=1,id="+bob.Compact()+",name=bob", "--host-record=bob.corp.example,192.0.2.7,2001:db8::7")

	const both = "[192.0.2.7:6450 [2001:db8::7]:6450]"
	for name, server := range map[string]string{
		"Knot DNS": knot, "Unbound": unbound("unbound.conf", key), "dnsmasq before Knot DNS": "127.0.0.1:" + front, "dnsmasq": "127.0.0.1:" + own,
	} {
		t.Run(name, func(t *testing.T) {
			find := func(text string) string {
				n, err := ParseName(text)
				must(t, err)
				places, err := newFinder(t, "corp.example", server).Find(t.Context(), n)
				if err != nil {
					return err.Error()
				}
				out := ""
				for _, p := range places {
					out += fmt.Sprint(p.Name, " ", p.ID == bob, " ", p.Addresses, "; ")
				}
				return out
			}
			got, ttl, err := lookupOnce(t, newFinder(t, "corp.example", server))
			if err != nil || len(got) != 1 || got[0].ID != bob || fmt.Sprint(got[0].Addresses) != both {
				t.Errorf("%+v, %v", got, err)
			}
			if name != "dnsmasq" && (ttl < 20*time.Second || ttl > 61*time.Second) { // its own records hold for no time
				t.Errorf("that holds for %v", ttl)
			}
			want := map[string]string{"bob.corp.example": "bob true " + both + "; "}
			if name != "dnsmasq" {
				want["link.corp.example"] = "Jörg true " + both + "; "
				want["other.corp.example"] = "bob true " + both + "; "
				want["wild.corp.example"] = " false [192.0.2.66:6450]; " // a wildcard is an address like another
				want["big.corp.example"] = "carol false [192.0.2.9:6450]; "
			}
			for ask, answer := range want {
				if said := find(ask); said != answer {
					t.Errorf("%s: %s, want %s", ask, said, answer)
				}
			}
			if name != "dnsmasq" {
				got, _, err := lookupOnce(t, newFinder(t, "many.corp.example", server))
				if err != nil || len(got) != maxTargets {
					t.Errorf("%d of many, %v", len(got), err)
				}
			}
		})
	}
	t.Run("what is forged", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		n, _ := ParseName("bob.corp.example")
		places, err := newFinder(t, "corp.example", unbound("forged.conf", forged)).Find(ctx, n)
		if err == nil || !strings.Contains(err.Error(), "SERVFAIL (the servers of that zone do not answer it, or not validly)") {
			t.Errorf("%+v, %v", places, err)
		}
	})
}
