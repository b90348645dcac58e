package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
)

var quiet = slog.New(slog.DiscardHandler)

// browser is one that does as it is told.
type browser struct {
	t       *testing.T
	address string
	token   string
}

// world is a kithd in memory with a page.
func world(t *testing.T, b *apitest.Backend) (*Server, *client.Client) {
	t.Helper()
	s := New(Options{Log: quiet, Changed: func() {}})
	kithd := client.New(apitest.ServeWith(t, b, localapi.NewBroker(16), s))
	t.Cleanup(kithd.Close)
	t.Cleanup(s.Close)
	return s, kithd
}

// openPage opens the page as `kith web` and a browser do.
func openPage(t *testing.T, kithd *client.Client, options api.WebOptions) browser {
	t.Helper()
	opened, err := kithd.Web(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	b, ticket := at(t, opened.URL)
	status, token := b.redeem(ticket)
	if status != http.StatusOK || token.Token == "" || token.ReadOnly != options.ReadOnly {
		t.Fatalf("status %d, %+v", status, token)
	}
	b.token = token.Token
	return b
}

func at(t *testing.T, url string) (b browser, ticket string) {
	t.Helper()
	rest, ticket, ok := strings.Cut(url, "/#")
	address, ok2 := strings.CutPrefix(rest, "http://")
	if host, _, err := net.SplitHostPort(address); !ok || !ok2 || err != nil || host != "127.0.0.1" {
		t.Fatalf("the page is at %q", url)
	}
	return browser{t: t, address: address}, ticket
}

func (b browser) redeem(ticket string) (status int, token api.WebToken) {
	b.t.Helper()
	body, _ := json.Marshal(api.WebSession{Ticket: ticket})
	status, text := b.call("POST", api.PathWebSession, string(body))
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &token); err != nil {
			b.t.Fatal(err)
		}
	}
	return status, token
}

// request is one as the page makes it.
func (b browser) request(method, path, body string) *http.Request {
	r, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+b.address+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method != "GET" {
		r.Header.Set("Origin", "http://"+b.address)
	}
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return r
}

func (b browser) call(method, path, body string) (status int, text string) {
	b.t.Helper()
	answer, text := b.send(b.request(method, path, body))
	return answer.StatusCode, text
}

func (b browser) send(r *http.Request) (*http.Response, string) {
	b.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := c.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer, string(text)
}

func TestAPageIsOpenedOnceAndServesItsUser(t *testing.T) {
	backend := &apitest.Backend{
		State:   api.Status{Name: "alice"},
		Pending: []api.Request{{ID: "r1", Peer: "bob", Direction: api.Incoming}},
		Shared:  []api.Policy{{Name: "default", Amounts: api.ShareOf("50%")}},
	}
	s, kithd := world(t, backend)
	if s.Address() != "" {
		t.Fatal("somebody listens before the page is opened")
	}
	opened, err := kithd.Web(t.Context(), api.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, ticket := at(t, opened.URL)
	if answer, text := b.send(b.request("GET", "/", "")); answer.StatusCode != http.StatusOK || !strings.Contains(text, "<!doctype html>") {
		t.Errorf("%d: %q", answer.StatusCode, text)
	} else {
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY",
		} {
			if got := answer.Header.Values(name); !slices.Equal(got, []string{want}) {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	if status, _ := b.redeem("x" + ticket); status != http.StatusUnauthorized {
		t.Errorf("another ticket: %d", status)
	}
	status, token := b.redeem(ticket)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	if again, _ := b.redeem(ticket); again != http.StatusUnauthorized {
		t.Errorf("the ticket is good again: %d", again)
	}
	for _, wrong := range []string{"", "x", ticket, token.Token + "x", strings.ToLower(token.Token) + "="} {
		b.token = wrong
		if status, text := b.call("GET", "/api/v1/snapshot", ""); status != http.StatusUnauthorized || !strings.Contains(text, "kith web") {
			t.Errorf("token %q: %d %s", wrong, status, text)
		}
	}
	b.token = token.Token
	if status, text := b.call("GET", "/api/v1/snapshot", ""); status != http.StatusOK || !strings.Contains(text, `"name":"alice"`) {
		t.Errorf("%d: %s", status, text)
	}
	if status, text := b.call("POST", "/api/v1/requests/r1/accept", `{"granted":{"cpu":"1"}}`); status != http.StatusOK {
		t.Errorf("%d: %s", status, text)
	}
	if status, text := b.call("PATCH", "/api/v1/policies/default", `{"amounts":{"cpu":"20%"}}`); status != http.StatusOK {
		t.Errorf("%d: %s", status, text)
	}
	called := strings.Join(backend.Called(), "\n")
	for _, want := range []string{"Accept r1", "SetPolicy default"} {
		if !strings.Contains(called, want) {
			t.Errorf("%q is missing in\n%s", want, called)
		}
	}
}

func TestAStreamReachesThePage(t *testing.T) {
	backend := &apitest.Backend{State: api.Status{Name: "alice"}}
	s, kithd := world(t, backend)
	b := openPage(t, kithd, api.WebOptions{})
	answer, err := http.DefaultClient.Do(b.request("GET", "/api/v1/snapshot?follow=true", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	for _, name := range []string{"alice", "carol"} {
		backend.Set(func() { backend.State.Name = name })
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, `"name":"`+name+`"`) {
				break
			}
		}
	}
	s.Close() // as kithd does when it stops
	if _, err := io.ReadAll(lines); err == nil {
		t.Error("the stream goes on")
	}
	if _, err := kithd.Web(t.Context(), api.WebOptions{}); err == nil {
		t.Error("it is opened again")
	}
	if s.Address() != "" {
		t.Error("it listens still")
	}
}

func TestNothingOfOtherSitesComesIn(t *testing.T) {
	backend := &apitest.Backend{Pending: []api.Request{{ID: "r1", Peer: "bob", Direction: api.Incoming}}}
	_, kithd := world(t, backend)
	b := openPage(t, kithd, api.WebOptions{})
	_, port, _ := net.SplitHostPort(b.address)
	before := len(backend.Called())
	type change func(*http.Request)
	host := func(name string) change { return func(r *http.Request) { r.Host = name } }
	set := func(values ...string) change {
		return func(r *http.Request) { r.Header[values[0]] = values[1:] }
	}
	for name, c := range map[string]struct {
		change change
		status int
	}{
		"a name that leads here":        {host("evil.example:" + port), http.StatusMisdirectedRequest},
		"localhost":                     {host("localhost:" + port), http.StatusMisdirectedRequest},
		"without the port":              {host("127.0.0.1"), http.StatusMisdirectedRequest},
		"another port":                  {host("127.0.0.1:1"), http.StatusMisdirectedRequest},
		"a dot at the end":              {host("127.0.0.1.:" + port), http.StatusMisdirectedRequest},
		"all addresses":                 {host("0.0.0.0:" + port), http.StatusMisdirectedRequest},
		"another site":                  {set("Origin", "https://evil.example"), http.StatusForbidden},
		"another port's page":           {set("Origin", "http://127.0.0.1:1"), http.StatusForbidden},
		"a sandboxed page":              {set("Origin", "null"), http.StatusForbidden},
		"two origins":                   {set("Origin", "http://"+b.address, "https://evil.example"), http.StatusForbidden},
		"another site, says the client": {set("Sec-Fetch-Site", "cross-site"), http.StatusForbidden},
		"another port of this machine":  {set("Sec-Fetch-Site", "same-site"), http.StatusForbidden},
		"two words of it":               {set("Sec-Fetch-Site", "same-origin", "cross-site"), http.StatusForbidden},
	} {
		for _, what := range []string{"GET /", "GET /app.js", "GET /api/v1/snapshot", "POST /api/v1/requests/r1/accept", "POST /session", "GET /nothing"} {
			method, path, _ := strings.Cut(what, " ")
			r := b.request(method, path, "{}")
			c.change(r)
			answer, text := b.send(r)
			if answer.StatusCode != c.status {
				t.Errorf("%s, %s: %d %s", name, what, answer.StatusCode, text)
			}
			if allowed := answer.Header.Get("Access-Control-Allow-Origin"); allowed != "" {
				t.Errorf("%s, %s: allowed for %s", name, what, allowed)
			}
		}
	}
	// A link or an address typed by hand opens the page, and nothing else.
	for what, want := range map[string]int{"GET /": http.StatusOK, "GET /api/v1/snapshot": http.StatusForbidden, "POST /session": http.StatusForbidden} {
		method, path, _ := strings.Cut(what, " ")
		r := b.request(method, path, "")
		r.Header.Set("Sec-Fetch-Site", "none")
		if answer, text := b.send(r); answer.StatusCode != want {
			t.Errorf("by hand, %s: %d %s", what, answer.StatusCode, text)
		}
	}
	// A browser asks before it sends another site's request with a bearer.
	r := b.request("OPTIONS", "/api/v1/snapshot", "")
	r.Header.Set("Origin", "https://evil.example")
	r.Header.Set("Access-Control-Request-Headers", "authorization")
	if answer, _ := b.send(r); answer.StatusCode != http.StatusForbidden {
		t.Errorf("preflight: %d", answer.StatusCode)
	}
	if after := backend.Called(); len(after) != before {
		t.Errorf("these came through: %q", after[before:])
	}
}

func TestAPageToLookAtChangesNothing(t *testing.T) {
	backend := &apitest.Backend{Pending: []api.Request{{ID: "r1", Peer: "bob", Direction: api.Incoming}}, Shared: []api.Policy{{Name: "default"}}}
	_, kithd := world(t, backend)
	b := openPage(t, kithd, api.WebOptions{ReadOnly: true})
	if status, text := b.call("GET", "/api/v1/snapshot", ""); status != http.StatusOK {
		t.Errorf("%d: %s", status, text)
	}
	before, tried := len(backend.Called()), 0
	for _, c := range append([]string{"HEAD " + api.PathDoctor, "GET " + api.PathDoctor + "?peer=bob"}, calls...) {
		method, path, _ := strings.Cut(c, " ")
		if method == "GET" && !strings.HasPrefix(path, api.PathDoctor) {
			continue
		}
		tried++
		for _, name := range []string{"r1", "default"} {
			if strings.Contains(path, "{") {
				path = api.Path(path, name)
			}
			if status, text := b.call(method, api.PathWebAPI+path, "{}"); status != http.StatusForbidden || method != "HEAD" && !strings.Contains(text, "changes nothing") {
				t.Errorf("%s: %d %s", c, status, text)
			}
		}
	}
	if after := backend.Called(); tried == 0 || len(after) != before {
		t.Errorf("%d calls; these came through: %q", tried, after[before:])
	}
}

func TestThePageHasFewOfTheCalls(t *testing.T) {
	backend := &apitest.Backend{Config: []byte("a key"), Report: []byte("a report")}
	_, kithd := world(t, backend)
	b := openPage(t, kithd, api.WebOptions{})
	before := len(backend.Called())
	for _, what := range []string{
		"GET /api/v1/kubeconfig", "GET /api/v1/kubeconfig?direct=true", "GET /api/v1/bugreport", "GET /api/metrics", "POST /api/v1/web", "GET /api/debug/pprof/",
		"POST /api/v1/images", "DELETE /api/v1/peers/bob", "POST /api/v1/peers/bob/end", "PUT /api/v1/offloads/shop", "POST /api/v1/tether", "POST /api/v1/doctor/fix",
		"GET /api/v1/snapshot/../kubeconfig", "GET /api/v1/%2e%2e/v1/kubeconfig", "GET /api//v1/snapshot", "GET /v1/snapshot", "GET /api", "GET /page/app.js", "GET /..%2fserver.go",
		"HEAD /api/v1/kubeconfig", "DELETE /api/v1/snapshot",
	} {
		method, path, _ := strings.Cut(what, " ")
		if status, text := b.call(method, path, ""); status == http.StatusOK {
			t.Errorf("%s: %s", what, text)
		}
	}
	if after := backend.Called(); len(after) != before {
		t.Errorf("these came through: %q", after[before:])
	}
}

func TestBadSessionsAreRefused(t *testing.T) {
	_, kithd := world(t, &apitest.Backend{})
	opened, err := kithd.Web(t.Context(), api.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, ticket := at(t, opened.URL)
	for body, want := range map[string]int{
		"": 400, "{": 400, "[]": 400, "null": 401, "{}": 401, `{"ticket":""}`: 401, `{"ticket":"` + ticket + `","more":1}`: 400, `{"ticket":"` + ticket + `"}{}`: 400,
		`{"ticket":"` + strings.Repeat("x", 1<<20) + `"}`: 400,
	} {
		if status, text := b.call("POST", "/session", body); status != want {
			t.Errorf("%.40q: %d %s", body, status, text)
		}
	}
	if status, _ := b.redeem(ticket); status != http.StatusOK {
		t.Errorf("what was wrong took the ticket: %d", status)
	}
}

func TestCallsAndSessionsAreBounded(t *testing.T) {
	_, kithd := world(t, &apitest.Backend{State: api.Status{Name: "alice"}})
	stream := func(b browser) *http.Response {
		answer, err := http.DefaultClient.Do(b.request("GET", "/api/v1/events?follow=true", ""))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	unused := openPage(t, kithd, api.WebOptions{})
	var shown []browser
	for range maxSessions {
		b := openPage(t, kithd, api.WebOptions{}) // the last one takes the place of what is not shown
		if answer := stream(b); answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		shown = append(shown, b)
	}
	if status, _ := unused.call("GET", "/api/v1/snapshot", ""); status != http.StatusUnauthorized {
		t.Errorf("the page that was not shown is there: %d", status)
	}
	opened, err := kithd.Web(t.Context(), api.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, ticket := at(t, opened.URL)
	if status, _ := b.redeem(ticket); status != http.StatusConflict {
		t.Errorf("one too many: %d", status)
	}
	for range maxCalls - 1 {
		if answer := stream(shown[0]); answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
	}
	if answer := stream(shown[0]); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a call too many: %s", answer.Status)
	}
	if status, text := shown[1].call("GET", "/api/v1/snapshot", ""); status != http.StatusOK {
		t.Errorf("another page pays for it: %d %s", status, text)
	}
}

func TestTicketsAreBounded(t *testing.T) {
	s, kithd := world(t, &apitest.Backend{})
	var first, last api.Web
	for i := range 3 * maxTickets {
		opened, err := kithd.Web(t.Context(), api.WebOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if last = opened; i == 0 {
			first = opened
		}
	}
	if n := len(s.tickets); n != maxTickets {
		t.Errorf("%d tickets", n)
	}
	for url, want := range map[string]int{first.URL: http.StatusUnauthorized, last.URL: http.StatusOK} {
		b, ticket := at(t, url)
		if status, _ := b.redeem(ticket); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
}

func TestNoSecretIsKeptOrLogged(t *testing.T) {
	var log bytes.Buffer
	s := New(Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Changed: func() {}})
	opened, err := s.Open(localapi.Visitor{UID: 1000}, api.WebOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, ticket, _ := strings.Cut(opened.URL, "#")
	token, e := s.redeem(ticket, 1000)
	if e != nil {
		t.Fatal(e)
	}
	s.Close()
	if all := log.String() + fmt.Sprintf("%+v", s.sessions); strings.Contains(all, ticket) || strings.Contains(all, token.Token) {
		t.Error(all)
	}
}
