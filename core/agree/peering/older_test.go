package peering

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"kith.dev/core/agree/presence"
	"kith.dev/core/trust/identity"
)

// The messages of kith/v1 as its last daemon wrote them.
const (
	olderOpening = `{"commitment":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","question":{"name":"alice","resources":{"cpu":"1500m"},"endpoints":["192.168.1.7:6450"],"attempt":1}}`
	olderHello   = `{"version":"0.9.0","id":%q,"name":"bob","protocol":["kith/v1"]}` + "\n"
	olderProblem = `{"code":"version","message":"this Kith speaks kith/v1","do":"bring both to the same version of Kith"}` + "\n"
)

// An older daemon makes its sentence of what Hello says, there or as the first line of presence, and shows a problem as it is.
func TestAnOlderPeerIsToldOfTheVersion(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	send := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(within(t, patience), method, client.BaseURL()+path, strings.NewReader(body))
		must(t, err)
		if body == "" {
			req.Body, req.ContentLength = nil, 0
		} else {
			req.Header.Set("Content-Type", "application/json")
		}
		resp, err := client.Transport().RoundTrip(req)
		must(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(answer)
	}
	hello := fmt.Sprintf(`{"version":"test","id":%q,"name":"bob","protocol":["kith/v2"]}`, bob.ID())
	if code, answer := send("GET", "/kith/v1/hello", ""); code != 200 || strings.TrimSpace(answer) != hello {
		t.Errorf("hello: %d %s", code, answer)
	}
	if code, answer := send("GET", "/kith/v1/presence", ""); code != 200 || answer != `{"hello":`+hello+"}\n" {
		t.Errorf("presence: %d %s", code, answer)
	}
	const says = `{"code":"version","message":"bob speaks kith/v2, this Kith speaks kith/v1","do":"bring both to the same version of Kith"}`
	for _, call := range [][3]string{
		{"POST", "/kith/v1/requests", olderOpening},
		{"POST", "/kith/v1/requests/0123/reveal", `{"nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`},
		{"GET", "/kith/v1/requests/alice-a1b2", ""}, {"GET", "/kith/v1/contracts", ""}, {"DELETE", "/kith/v1/contracts/a1b2c3d4e5f6g7h8", ""},
		{"PUT", "/kith/v1/namespaces/shop?contract=a1b2c3d4e5f6g7h8", ""}, {"GET", "/kith/v1/usage", ""},
	} {
		if code, answer := send(call[0], call[1], call[2]); code != http.StatusNotImplemented || strings.TrimSpace(answer) != says {
			t.Errorf("%s %s: %d %s", call[0], call[1], code, answer)
		}
	}
	if len(bob.asks()) != 0 {
		t.Error("a question of the older protocol, whose code can be ground, came before the owner")
	}
}

// An older daemon at the other end says hello, and that it does not know any other path.
func TestOfAnOlderPeerTheSentenceNamesBothVersions(t *testing.T) {
	alice, older := someone(t), bob(t, Limits{}, func(s *Server) {
		s.mux = http.NewServeMux()
		s.mux.HandleFunc("GET /kith/v1/hello", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, olderHello, s.config.Identity.ID())
		})
		s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", MediaProblem)
			w.WriteHeader(http.StatusNotImplemented)
			io.WriteString(w, olderProblem)
		})
	})
	const says = "bob speaks kith/v1, this Kith speaks kith/v2 (bring both to the same version of Kith)"
	_, err := dialer(t, alice, identity.ID{}, older.addr).Ask(within(t, patience), someQuestion(), true, func() error {
		t.Error("alice's nonce goes out")
		return nil
	})
	if p := wantProblem(t, err, CodeVersion); p.Error() != says {
		t.Error(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	contacts := NewContacts(ContactsConfig{Identity: alice, Log: quiet()})
	done := make(chan error)
	go func() { done <- contacts.Run(ctx) }()
	defer func() { cancel(); <-done }()
	contacts.Set([]Target{{ID: older.ID(), Addresses: []string{older.addr}}})
	eventually(t, "the contact says why", func() bool {
		now := contacts.Snapshot()[0]
		return now.Cause == presence.OtherVersion && now.Why == says
	})
}

// What an older contact reads ends after its first line; it must not wait for more.
func TestTheLineForOlderContactsEnds(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	conn := raw(t, alice, bob)
	fmt.Fprint(conn, "GET /kith/v1/presence HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Error(err, resp.Header)
	}
}

// The link of a Kith that agreed on addresses in another way, as it wrote it, and its refusal of one without what it had.
const (
	olderLinkText    = `{"publicKey":"q1NXkVZOeu7ysGNJ0oGSmSVr8vR7Ub0BPZx8T4qCJX4=","port":6450,"ranges":[{"name":"pods","prefix":"10.42.0.0/16"}]}`
	olderLinkProblem = `{"code":"bad-request","message":"ranges: none"}` + "\n"
)

const (
	otherPlan  = "one of the two runs an older Kith, which agrees on the addresses of guests in another way"
	bothToSame = " (bring both to the same version of Kith)"
)

func TestALinkOfAnOlderKithIsRefusedInWords(t *testing.T) {
	alice, bob := someone(t), bob(t, Limits{})
	client := dialer(t, alice, bob.ID(), bob.addr)
	var theirs Link
	err := client.Call(within(t, patience), http.MethodPut, "/kith/v2/link", json.RawMessage(olderLinkText), &theirs)
	if p := wantProblem(t, err, CodeVersion); p.Error() != otherPlan+bothToSame {
		t.Error(p)
	}
}

func TestAnOlderKithThatRefusesALinkIsNamed(t *testing.T) {
	alice, older := someone(t), bob(t, Limits{}, func(s *Server) {
		s.mux = http.NewServeMux()
		s.mux.HandleFunc("PUT /kith/v2/link", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", MediaProblem)
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, olderLinkProblem)
		})
	})
	_, err := dialer(t, alice, older.ID(), older.addr).Link(within(t, patience), someLink())
	if p := wantProblem(t, err, CodeVersion); p.Error() != otherPlan+"; it says: ranges: none"+bothToSame {
		t.Error(p)
	}
}
