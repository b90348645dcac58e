package backend

import (
	"errors"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
	"kith.dev/core/trust/identity"
	"kith.dev/daemon/config"
)

// silentNames cannot look up a name.
type silentNames struct{ Names }

func (silentNames) Troubles() []dns.Trouble {
	return []dns.Trouble{{Name: "corp.example", Why: errors.New("SRV _kith._tcp.corp.example.: name server 192.0.2.53: no answer")}}
}

func TestANameThatCannotBeLookedUpIsAProblem(t *testing.T) {
	list := (&Backend{Names: silentNames{}}).nameProblems()
	if len(list) != 1 || list[0].What != "corp.example could not be looked up" || !strings.Contains(list[0].Why, "192.0.2.53") || !strings.Contains(list[0].Do, "resolv.conf") || list[0].Severity != api.SeverityInfo {
		t.Errorf("%+v", list)
	}
}

func TestRecordsOfThisCluster(t *testing.T) {
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{Me: me, Settings: config.Config{Name: "bob", PeerAPIPort: 7000}}
	r, err := b.DNSRecords(t.Context(), api.DNSRecordsOptions{Domain: "Bücher.example", Addresses: []string{"10.0.0.7", "fd00::7"}})
	if err != nil || len(r.Records) != 5 || r.Domain != "xn--bcher-kva.example." || r.Records[0].Data != "0 0 7000 bob.xn--bcher-kva.example." || r.Records[0].TTL != 3600 || len(r.Notes) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if !strings.Contains(r.Records[2].Data, me.ID().Compact()) || r.Records[4].Type != "AAAA" || r.Records[4].TTL != 300 {
		t.Errorf("%+v", r.Records)
	}
	for field, o := range map[string]api.DNSRecordsOptions{"domain": {Domain: "a b"}, "address": {Addresses: []string{"::1"}}, "host": {Host: "a.b"}, "ttl": {TTL: -1, Addresses: []string{"10.0.0.7"}}} {
		var e *api.Error
		if _, err := b.DNSRecords(t.Context(), o); !errors.As(err, &e) || e.Code != api.CodeInvalid || e.Field != field {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
