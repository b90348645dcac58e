package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSplitAddress(t *testing.T) {
	for in, want := range map[string]string{
		"bob.example":             "bob.example:6450",
		" Bob.Example.:7000 ":     "bob.example:7000",
		"bob":                     "bob:6450",
		"192.0.2.7":               "192.0.2.7:6450",
		"192.0.2.7:1":             "192.0.2.7:1",
		"2001:db8::7":             "[2001:db8::7]:6450",
		"[2001:db8::7]":           "[2001:db8::7]:6450",
		"[2001:DB8::7]:65535":     "[2001:db8::7]:65535",
		"fe80::7%eth0":            "[fe80::7%eth0]:6450",
		"::ffff:192.0.2.7":        "192.0.2.7:6450",
		"":                        "",
		":6450":                   "",
		"bob:0":                   "",
		"bob:65536":               "",
		"bob:http":                "",
		"bob:1:2":                 "",
		"https://bob":             "",
		"bob/path":                "",
		"-bob":                    "",
		"a..b":                    "",
		"10.0.0.300":              "",
		"0.0.0.0":                 "",
		"224.0.0.1:6450":          "",
		strings.Repeat("a.", 200): "",
		strings.Repeat("a", 64):   "",
	} {
		host, port, err := splitAddress(in)
		got := ""
		if err == nil {
			got = netJoin(host, port)
		} else if !strings.Contains(err.Error(), "write host") {
			t.Errorf("%q: the error gives no advice: %v", in, err)
		}
		if got != want {
			t.Errorf("%q gives %q, %v, want %q", in, got, err, want)
		}
	}
}

func netJoin(host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d", host, port)
}

// names it knows, or the failure it has for them.
type zone struct {
	mu    sync.Mutex
	hosts map[string][]netip.Addr
	asked int
}

func (z *zone) set(host string, a ...netip.Addr) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.hosts[host] = a
}

func (z *zone) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	if a := z.hosts[host]; a != nil {
		return a, nil
	}
	return nil, errors.New("no such host")
}

// follow collects the events of a finder, in a bubble.
func follow(ctx context.Context, f Finder) (take func() []Event, done chan error) {
	events := make(chan Event)
	var mu sync.Mutex
	var got []Event
	done = make(chan error, 1)
	go func() {
		for e := range events {
			mu.Lock()
			got = append(got, e)
			mu.Unlock()
		}
	}()
	go func() {
		done <- f.Run(ctx, events)
		close(events)
	}()
	return func() []Event {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := got
		got = nil
		return out
	}, done
}

func TestManual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		z := &zone{hosts: map[string][]netip.Addr{}}
		m := NewManual(z)
		take, done := follow(ctx, m)

		listed, err := m.Add("Bob.example")
		if err != nil || listed != "bob.example:6450" {
			t.Fatal(listed, err)
		}
		if e := take(); len(e) != 1 || e[0].Name != listed || len(e[0].Addresses) != 0 || !e[0].ID.IsZero() || e[0].Source != ManualSource {
			t.Errorf("a name that does not resolve is not shown: %+v", e)
		}
		z.set("bob.example", addrs("192.0.2.7", "2001:db8::7")...)
		time.Sleep(time.Minute)
		if e := take(); len(e) != 1 || !reflect.DeepEqual(e[0].Addresses, ports("192.0.2.7:6450", "[2001:db8::7]:6450")) {
			t.Errorf("once it resolves: %+v", e)
		}
		z.set("bob.example")
		time.Sleep(time.Hour)
		if e := take(); len(e) != 0 {
			t.Errorf("a failing resolver: %+v", e)
		}
		z.set("bob.example", addrs("192.0.2.8")...)
		time.Sleep(10 * time.Minute)
		if e := take(); len(e) == 0 || !reflect.DeepEqual(e[0].Addresses, ports("192.0.2.8:6450")) {
			t.Errorf("it moved: %+v", e)
		}

		if _, err := m.Add("192.0.2.8"); err != nil {
			t.Fatal(err)
		}
		take()
		if !m.Identify("bob.example", testID("bob")) || !m.Identify("192.0.2.8:6450", testID("bob")) || m.Identify("carol", testID("bob")) {
			t.Error("Identify")
		}
		e := take()
		last := e[len(e)-1]
		if last.ID != testID("bob") || last.Gone || !reflect.DeepEqual(last.Addresses, ports("192.0.2.8:6450")) {
			t.Errorf("identified: %+v", e)
		}
		if !m.Remove("bob.example:6450") || m.Remove("bob.example") || !reflect.DeepEqual(m.List(), []string{"192.0.2.8:6450"}) {
			t.Errorf("Remove leaves %v", m.List())
		}
		m.Remove("192.0.2.8")
		if e := take(); len(e) == 0 || !e[len(e)-1].Gone || e[len(e)-1].ID != testID("bob") {
			t.Errorf("removed: %+v", e)
		}
		before := z.asked
		time.Sleep(time.Hour)
		if z.asked != before {
			t.Error("resolves what is not listed")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestManualIsBounded(t *testing.T) {
	m := NewManual(&zone{})
	for i := range maxManual {
		_, err := m.Add(fmt.Sprintf("host%d", i))
		must(t, err)
	}
	if _, err := m.Add("host0"); err != nil {
		t.Error("one that is there already:", err)
	}
	if _, err := m.Add("onemore"); err == nil || !strings.Contains(err.Error(), "full") {
		t.Error(err)
	}
}
