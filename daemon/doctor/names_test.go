package doctor

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/dns"
)

// server is a name server at this machine that knows one host, and nothing of others.
func server(t *testing.T, answers bool) string {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	if !answers {
		return socket.LocalAddr().String()
	}
	s := &miekg.Server{PacketConn: socket, Handler: miekg.HandlerFunc(func(w miekg.ResponseWriter, q *miekg.Msg) {
		m := new(miekg.Msg).SetReply(q)
		if q.Question[0].Name == "lab.example." && q.Question[0].Qtype == miekg.TypeA {
			rr, err := miekg.NewRR("lab.example. 60 IN A 192.0.2.7")
			if err != nil {
				t.Error(err)
			}
			m.Answer = append(m.Answer, rr)
		} else if q.Question[0].Name != "lab.example." {
			m.Rcode = miekg.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { _ = s.Shutdown() })
	return socket.LocalAddr().String()
}

func TestNamesThatLeadNowhereAreFound(t *testing.T) {
	answers, silent := server(t, true), server(t, false)
	for what, tc := range map[string]struct {
		name, server string
		state        api.CheckState
		what, why    string
	}{
		"a host":              {"lab.example", answers, api.CheckOK, "lab.example leads to 192.0.2.7:6450", ""},
		"nobody knows it":     {"gone.example", answers, api.CheckWarning, "gone.example, of the peer lab, leads to no cluster", "name server " + answers + " knows none"},
		"a server is silent":  {"lab.example", silent, api.CheckWarning, "lab.example, of the peer lab, could not be looked up", "name server " + silent},
		"what cannot be read": {"10.0.0.300", answers, api.CheckWarning, "10.0.0.300, of the peer lab, leads to no cluster", "no name in the DNS"},
	} {
		t.Run(what, func(t *testing.T) {
			d, err := dns.New(dns.Config{Port: 6450, Servers: []string{tc.server}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // shorter than the look-up's own: the doctor has no more
			defer cancel()
			if tc.server != silent {
				ctx = t.Context()
			}
			var found []api.Finding
			Names{Of: []Named{{tc.name, "the peer lab"}}, Find: d.Find}.Check(ctx, func(f api.Finding) { found = append(found, f) })
			if len(found) != 1 {
				t.Fatalf("%+v", found)
			}
			f := found[0]
			if f.Name != "dns-name" || f.State != tc.state || f.What != tc.what || !strings.Contains(f.Why, tc.why) || f.State != api.CheckOK && f.Do == "" {
				t.Errorf("%+v", f)
			}
		})
	}
}
