package clusterset

import (
	"crypto/sha256"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/trust/identity"
)

var there = netip.MustParsePrefix("10.127.3.0/24")

func good() *Export {
	return &Export{
		Name: Name{"shop", "web"}, Since: day, Ports: []Port{tcp("http", 80)}, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"example.com/note": "x y"},
		Slices: []Slice{{Ports: []Port{tcp("http", 8080)}, Endpoints: []Endpoint{{Address: netip.MustParseAddr("10.127.3.200"), Hostname: "web-0", Ready: true}}}},
	}
}

func TestWhatAPeerExportsIsBounded(t *testing.T) {
	if err := (&Tell{Export: good()}).Check(there); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Export){
		"no namespace":            func(e *Export) { e.Namespace = "../x" },
		"a name as a path":        func(e *Export) { e.Name.Name = "a/b" },
		"an address of our own":   func(e *Export) { e.Slices[0].Endpoints[0].Address = netip.MustParseAddr("10.42.0.5") },
		"no address":              func(e *Export) { e.Slices[0].Endpoints[0].Address = netip.Addr{} },
		"a hostname as a domain":  func(e *Export) { e.Slices[0].Endpoints[0].Hostname = "a.b" },
		"a port that is none":     func(e *Export) { e.Ports[0].Port = 0 },
		"a protocol that is none": func(e *Export) { e.Slices[0].Ports[0].Protocol = "ICMP" },
		"two ports, one nameless": func(e *Export) { e.Ports = append(e.Ports, tcp("", 81)) },
		"too many ports":          func(e *Export) { e.Ports = make([]Port, MaxPorts+1) },
		"too many slices":         func(e *Export) { e.Slices = make([]Slice, MaxSlices+1) },
		"too many pods":           func(e *Export) { e.Slices[0].Endpoints = make([]Endpoint, MaxEndpoints+1) },
		"a label that is none":    func(e *Export) { e.Labels["x y"] = "" },
		"a label of Kith's":       func(e *Export) { e.Labels["kith.dev/consumer"] = "x" },
		"a value that is none":    func(e *Export) { e.Labels["app"] = "x y" },
		"a huge annotation":       func(e *Export) { e.Annotations["a"] = strings.Repeat("x", 5000) },
		"an affinity for ever":    func(e *Export) { e.AffinitySeconds = 1 << 30 },
		"an affinity of no kind":  func(e *Export) { e.SessionAffinity = "Cookie" },
		"a policy of no kind":     func(e *Export) { e.InternalTrafficPolicy = "Some" },
		"a distribution too long": func(e *Export) { e.TrafficDistribution = strings.Repeat("x", 64) },
	} {
		e := good()
		change(e)
		if (&Tell{Export: e}).Check(there) == nil {
			t.Errorf("%s is taken", what)
		}
	}
	for _, patterns := range [][]string{make([]string, 65), {""}, {"a b"}, {"[a-z]"}, {"*a*b*c*d*e*"}, {strings.Repeat("a", 64)}} {
		if (&Ask{patterns}).Check() == nil {
			t.Errorf("%q is taken", patterns)
		}
	}
}

// TestWhatAPeerSaysIsTakenAsFarAsItWasAskedFor: a peer over a real connection, and what is kept of what it says.
func TestWhatAPeerSaysIsTakenAsFarAsItWasAskedFor(t *testing.T) {
	id := identity.ID(sha256.Sum256([]byte("bob")))
	other := func(namespace, name string) *Export {
		e := good()
		e.Name = Name{namespace, name}
		return e
	}
	for what, c := range map[string]struct {
		says []Tell
		kept string
		end  string // of the error
	}{
		"what there is":                          {[]Tell{{Export: good()}, {Export: other("shop", "db")}, {Synced: true}, {Gone: &Name{"shop", "db"}}}, "shop/web", "EOF"},
		"what was before goes, when all is said": {[]Tell{{Synced: true}}, "", "EOF"},
		"and not before":                         {nil, "shop/old", "EOF"},
		"what was not asked for":                 {[]Tell{{Export: other("kube-system", "dns")}}, "shop/old", "was not asked for"},
		"what is not there":                      {[]Tell{{Gone: &Name{"x", "y"}}}, "shop/old", "EOF"},
	} {
		s := &Set{told: map[types.NamespacedName]map[string]Export{}, peers: map[string]*Peer{}}
		p := s.Peer(PeerConfig{Name: "bob", ID: id.String(), Guests: func() netip.Prefix { return there }})
		if p.cluster == "" {
			t.Fatal("no ID")
		}
		s.put(p.cluster, Name{"shop", "old"}, other("shop", "old"))
		here, bob := net.Pipe()
		go func() {
			for _, tell := range c.says {
				line, _ := Line(tell)
				_, _ = bob.Write(line)
			}
			bob.Close()
		}()
		_ = here.SetDeadline(time.Now().Add(5 * time.Second))
		err := p.hear(t.Context(), lines(here, maxLine), []string{"shop"})
		if err == nil || !strings.Contains(err.Error(), c.end) {
			t.Errorf("%s: %v", what, err)
		}
		var kept []string
		for _, n := range s.of(p.cluster) {
			kept = append(kept, n.Namespace+"/"+n.Name)
		}
		if got := strings.Join(kept, " "); got != c.kept {
			t.Errorf("%s: %q is kept, want %q", what, got, c.kept)
		}
	}
}

func FuzzTell(f *testing.F) {
	line, _ := json.Marshal(Tell{Export: good()})
	f.Add(string(line))
	f.Add(`{"gone":{"namespace":"shop","name":"web"}}`)
	f.Add(`{"synced":true}{}`)
	f.Fuzz(func(t *testing.T, text string) {
		in := lines(strings.NewReader(text), maxLine)
		for range 10 {
			var tell Tell
			if err := in.Next(&tell); err != nil {
				return
			}
			if tell.Check(there) != nil || tell.Export == nil {
				continue
			}
			for _, s := range tell.Export.Slices {
				for _, e := range s.Endpoints {
					if !there.Contains(e.Address) {
						t.Fatalf("%s is taken", e.Address)
					}
				}
			}
			if m := merge([]from{{"a", *tell.Export}, {"b", *good()}}); len(m.Ports) > MaxPorts {
				t.Fatal(len(m.Ports))
			}
		}
	})
}

func FuzzAsk(f *testing.F) {
	f.Add(`{"namespaces":["shop","team-*"]}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := ReadAsk(strings.NewReader(text)); err == nil && len(a.Namespaces) > 64 {
			t.Fatal(len(a.Namespaces))
		}
	})
}
