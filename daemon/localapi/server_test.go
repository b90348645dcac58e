package localapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
)

func bob() api.Peer {
	return api.Peer{
		Name: "bob", ID: "BOBBOBB", ShortID: "bobbobb", Source: api.SourceLAN, Addresses: []string{"10.0.0.2:6450"},
		Outgoing: api.StateNone, Incoming: api.StateNone,
	}
}

func serve(t *testing.T, b *apitest.Backend) (*client.Client, string) {
	socket := apitest.Serve(t, b, localapi.NewBroker(16))
	c := client.New(socket)
	t.Cleanup(c.Close)
	return c, socket
}

// curl makes a call as a script would.
func curl(t *testing.T, socket, method, path, body string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	r, err := http.NewRequest(method, "http://kithd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

func TestEveryCallReachesTheBackendWithItsArguments(t *testing.T) {
	document := []byte(`{"a":"<&>"}`)
	b := &apitest.Backend{
		State:   api.Status{Name: "alice", Version: "1.2.3"},
		Known:   []api.Peer{bob()},
		Pending: []api.Request{{ID: "r1", Peer: "bob", Direction: api.Incoming}, {ID: "r2", Peer: "carol", Direction: api.Incoming}},
		Signed:  []api.Contract{{Name: "bob-out", ID: "c1", Document: document}},
		Config:  []byte("kind: Config\n"),
		Verdict: api.VerifyResult{Valid: true},
		Shared:  []api.Policy{{Name: "default", Amounts: api.Resources{"cpu": "50%", "memory": "50%"}}},
		Here:    []api.Guest{{Name: "web"}},
	}
	c, _ := serve(t, b)
	ctx := t.Context()
	check := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	status, err := c.Status(ctx)
	check("status", status.Name, "alice", err)
	version, err := c.Version(ctx)
	check("version", version.Version, "1.2.3", err)
	kubeconfig, err := c.Kubeconfig(ctx)
	check("kubeconfig", string(kubeconfig), "kind: Config\n", err)
	kubeconfig, err = c.DirectKubeconfig(ctx)
	check("direct kubeconfig", string(kubeconfig), "kind: Config\n", err)
	peers, err := c.Peers(ctx)
	check("peers", len(peers), 1, err)
	peer, err := c.Peer(ctx, "BOBBOBB")
	check("peer", peer.Name, "bob", err)
	added, err := c.AddPeer(ctx, api.AddPeer{Address: "[fe80::1%eth0]:6450"})
	check("add", []string(added.Addresses), []string{"[fe80::1%eth0]:6450"}, err)
	peer, err = c.Peer(ctx, "[fe80::1%eth0]:6450")
	check("peer by address", peer.Name, "added", err)
	check("forget", nil, nil, c.ForgetPeer(ctx, "added"))
	b.Set(func() { b.Records = api.DNSRecords{Domain: "example.org."} })
	records, err := c.DNSRecords(ctx, api.DNSRecordsOptions{Domain: "example.org", Host: "@", Addresses: []string{"192.0.2.7", "2001:db8::7"}, TTL: time.Minute})
	check("records", records.Domain, "example.org.", err)
	var steps []string
	report := func(p api.Progress) { steps = append(steps, p.Message+"|"+p.Code) }
	peer, err = c.Ask(ctx, "bob", api.PeerAsk{Resources: api.Resources{"cpu": "2"}, Wait: true}, report)
	check("ask", peer.Outgoing, api.StateConnected, err)
	b.Set(func() { b.Known[0].Confirm = &api.Confirmation{Code: "402817", Terms: []string{"cpu costs 0.02 EUR"}} })
	peer, err = c.ConfirmPeer(ctx, "bob", api.PeerConfirm{Code: "402 817", Terms: true})
	check("confirm", peer.Outgoing, api.StateConnected, err)
	b.Set(func() { b.Known[0].Asked = api.Resources{"cpu": "3"} })
	peer, err = c.Withdraw(ctx, "bob")
	check("withdraw", len(peer.Asked), 0, err)
	woken, err := c.Wake(ctx, "bob")
	check("wake", woken.Peer, "bob", err)
	peer, err = c.Unpeer(ctx, "bob", api.EndOptions{}, report)
	check("unpeer", peer.Outgoing, api.StateNone, err)
	requests, err := c.Requests(ctx)
	check("requests", len(requests), 2, err)
	asked, err := c.Request(ctx, "bob")
	check("request", asked.ID, "r1", err)
	answered, err := c.Accept(ctx, "r1", api.Resources{"cpu": "1"})
	check("accept", answered.State, api.StateContracted, err)
	answered, err = c.Decline(ctx, "carol")
	check("decline", answered.State, api.StateDeclined, err)
	contracts, err := c.Contracts(ctx)
	check("contracts", len(contracts), 1, err)
	contract, err := c.Contract(ctx, "bob-out")
	check("contract", contract.Document, document, err)
	verdict, err := c.VerifyContract(ctx, contract)
	check("verify", verdict.Valid, true, err)
	policy, err := c.SetPolicy(ctx, "default", api.PolicyChange{Amounts: map[string]string{"cpu": "2", "memory": ""}})
	check("set policy", policy.Amounts, api.Resources{"cpu": "2"}, err)
	policies, err := c.Policies(ctx)
	check("policies", len(policies), 1, err)
	offload, err := c.Offload(ctx, "shop", api.OffloadOptions{Peers: []string{"bob"}}, report)
	check("offload", offload.Twins[0].Peer, "bob", err)
	offloads, err := c.Offloads(ctx)
	check("offloads", len(offloads), 1, err)
	check("unoffload", nil, nil, c.Unoffload(ctx, "shop", api.UnoffloadOptions{Force: true, Wait: time.Minute}, report))
	_, err = c.MoveVolume(ctx, api.MoveOptions{Namespace: "shop", Claim: "data", To: "bob", Rate: "10Mi", Wait: true}, report)
	if !errors.Is(err, &api.Error{Code: api.CodeNotFound}) { // Backend keeps none
		t.Error(err)
	}
	if _, err := c.MoveVolume(ctx, api.MoveOptions{Namespace: "shop", Claim: "data"}, report); !errors.Is(err, &api.Error{Code: api.CodeInvalid}) {
		t.Error(err)
	}
	guests, err := c.Guests(ctx)
	check("guests", guests[0].Name, "web", err)
	b.Set(func() { b.Use = []api.Top{{Peer: "bob"}} })
	b.Set(func() { b.Reasons = map[string]api.Why{"shop/late": {Name: "late", State: api.PodWaiting}} })
	late, err := c.NotRunning(ctx)
	check("not running", late[0].Name, "late", err)
	use, err := c.Top(ctx)
	check("top", use[0].Peer, "bob", err)
	b.Set(func() { b.Reasons = map[string]api.Why{"shop/web": {Name: "web", State: api.PodReady}} })
	why, err := c.Why(ctx, api.WhyOptions{Namespace: "shop", Kind: "deploy", Name: "web"})
	check("why", why.Of, "deployment/web", err)
	b.Set(func() {
		b.Effects, b.TetherSteps = []string{"it is run by bob"}, []api.Progress{{Message: "asking bob"}}
	})
	would, err := c.CheckTether(ctx, "bob")
	check("check a tether", would, api.TetherCheck{Peer: "bob", Effects: api.List[string]{"it is run by bob"}, Blockers: api.List[api.Problem]{}}, err)
	status, err = c.Tether(ctx, api.TetherOptions{Peer: "bob", LocalWorkloads: api.DrainWorkloads, Code: "402 817"}, report)
	check("tether", status.Mode, api.Tethered, err)
	status, err = c.Untether(ctx, api.UntetherOptions{Force: true, Timeout: time.Minute}, report)
	check("untether", status.Mode, api.Autonomous, err)

	check("progress", steps, []string{
		"asked bob|402817", "bob accepted|", "bringing pods home|", "making the namespace at its peers|", "bringing pods home|", "asking bob|", "asking bob|",
	}, nil)
	check("calls", b.Called(), []string{
		"Status", "Version", "Kubeconfig " + strconv.Itoa(os.Getuid()), "DirectKubeconfig", "Peers", "Peer BOBBOBB", "AddPeer [fe80::1%eth0]:6450", "Peer [fe80::1%eth0]:6450",
		"ForgetPeer added", "DNSRecords address=192.0.2.7&address=2001%3Adb8%3A%3A7&domain=example.org&host=%40&ttl=1m0s", "Ask bob cpu 2", "Confirm bob 402817 terms=true reject=false", "Withdraw bob", "Wake bob", "Unpeer bob", "Requests", "Request bob", "Accept r1 cpu 1", "Decline carol", "Contracts",
		"Contract bob-out", `VerifyContract c1 {"a":"<&>"}`, "SetPolicy default", "Policies", "Offload shop both default bob",
		"Offloads", "Unoffload shop force 1m0s", "MoveVolume shop data bob 10Mi wait", "Guests", "NotRunning", "Top", "Why deployment shop web", "CheckTether bob", "Tether bob drain 402817", "Untether force 1m0s",
	}, nil)
}

func TestEmptyListsAreNeverNull(t *testing.T) {
	_, socket := serve(t, &apitest.Backend{})
	for _, path := range []string{api.PathPeers, api.PathRequests, api.PathContracts, api.PathReceipts, api.PathPolicies, api.PathOffloads, api.PathGuests, api.PathVolumes, api.PathTop, api.PathNotRunning} {
		if status, body := curl(t, socket, "GET", path, ""); status != 200 || body != "[]\n" {
			t.Errorf("GET %s: %d %q, want 200 []", path, status, body)
		}
	}
	if _, body := curl(t, socket, "GET", api.PathStatus, ""); strings.Contains(body, "null") {
		t.Errorf("status has null: %s", body)
	}
}

func TestErrorsKeepTheirCodeAndSayWhatToDo(t *testing.T) {
	b := &apitest.Backend{Known: []api.Peer{bob()}, AskAnswer: &api.Error{Code: api.CodeDeclined, Message: "bob declined", Reason: "no"}}
	c, socket := serve(t, b)
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code               api.Code
		field              string
	}{
		"no such peer":         {"GET", "/v1/peers/bbo", "", 404, api.CodeNotFound, ""},
		"declined":             {"POST", "/v1/peers/bob/ask", `{"wait":true}`, 409, api.CodeDeclined, ""},
		"bad amount":           {"POST", "/v1/peers/bob/ask", `{"resources":{"cpu":"two"}}`, 400, api.CodeInvalid, "resources.cpu"},
		"next to nothing":      {"POST", "/v1/peers/bob/ask", `{"resources":{"memory":"4"}}`, 400, api.CodeInvalid, "resources.memory"},
		"nothing":              {"POST", "/v1/peers/bob/ask", `{"resources":{"cpu":"0"}}`, 400, api.CodeInvalid, "resources.cpu"},
		"shown what is none":   {"POST", "/v1/requests/r1/accept", `{"granted":{"cpu":"-1"}}`, 400, api.CodeInvalid, "granted.cpu"},
		"percent asked":        {"POST", "/v1/peers/bob/ask", `{"resources":{"cpu":"50%"}}`, 400, api.CodeInvalid, "resources.cpu"},
		"bad resource name":    {"POST", "/v1/peers/bob/ask", `{"resources":{"c p u":"1"}}`, 400, api.CodeInvalid, "resources"},
		"more than everything": {"PATCH", "/v1/policies/default", `{"amounts":{"cpu":"101%"}}`, 400, api.CodeInvalid, "amounts.cpu"},
		"unknown level":        {"PATCH", "/v1/policies/default", `{"podSecurity":"lax"}`, 400, api.CodeInvalid, "podSecurity"},
		"bad wait":             {"DELETE", "/v1/offloads/shop?wait=5", "", 400, api.CodeInvalid, "wait"},
		"a wait back in time":  {"DELETE", "/v1/offloads/shop?wait=-5s", "", 400, api.CodeInvalid, "wait"},
		"perhaps by force":     {"DELETE", "/v1/offloads/shop?force=perhaps", "", 400, api.CodeInvalid, "force"},
		"unknown strategy":     {"PUT", "/v1/offloads/shop", `{"strategy":"all"}`, 400, api.CodeInvalid, "strategy"},
		"unknown key":          {"POST", "/v1/peers", `{"where":"x:1"}`, 400, api.CodeInvalid, ""},
		"no address":           {"POST", "/v1/peers", ``, 400, api.CodeInvalid, "address"},
		"not JSON":             {"POST", "/v1/peers", `hello`, 400, api.CodeInvalid, ""},
		"two values":           {"POST", "/v1/peers", `{"address":"a:1"}{}`, 400, api.CodeInvalid, ""},
		"too large":            {"POST", "/v1/verify", `{"id":"` + strings.Repeat("x", api.MaxBody) + `"}`, 400, api.CodeInvalid, ""},
		"too large, no body":   {"POST", "/v1/peers/bob/end", strings.Repeat(" ", api.MaxBody+1), 400, api.CodeInvalid, ""},
		"newline in a name":    {"GET", "/v1/peers/a%0Ab", "", 400, api.CodeInvalid, "peer"},
		"bad since":            {"GET", "/v1/events?since=x", "", 400, api.CodeInvalid, "since"},
		"tether to nobody":     {"GET", "/v1/tether", "", 400, api.CodeInvalid, "peer"},
		"tether a stranger":    {"POST", "/v1/tether", `{"peer":"bbo"}`, 404, api.CodeNotFound, ""},
		"tether without peer":  {"POST", "/v1/tether", ``, 400, api.CodeInvalid, "peer"},
		"end what runs here":   {"POST", "/v1/tether", `{"peer":"bob","localWorkloads":"end"}`, 400, api.CodeInvalid, "localWorkloads"},
		"five digits":          {"POST", "/v1/tether", `{"peer":"bob","code":"06921"}`, 400, api.CodeInvalid, "code"},
		"untether untethered":  {"POST", "/v1/untether", ``, 409, api.CodeConflict, ""},
		"untether before":      {"POST", "/v1/untether", `{"timeout":-1}`, 400, api.CodeInvalid, "timeout"},
		"no such call":         {"POST", "/v1/tethers", "", 501, api.CodeUnsupported, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := curl(t, socket, tc.method, tc.path, tc.body)
			var got struct{ Error api.Error }
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if status != tc.status || got.Error.Code != tc.code || got.Error.Field != tc.field || got.Error.Message == "" {
				t.Errorf("%d %+v, want %d %s on %q", status, got.Error, tc.status, tc.code, tc.field)
			}
		})
	}
	_, err := c.Ask(t.Context(), "bob", api.PeerAsk{Wait: true}, nil)
	if !errors.Is(err, &api.Error{Code: api.CodeDeclined}) {
		t.Errorf("streamed: %v, want declined", err)
	}
	b.Fail = errors.New("disk full")
	if _, err = c.Status(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeInternal}) || err.Error() != "disk full" {
		t.Errorf("plain error: %#v", err)
	}
}

func TestLeavingCallerEndsTheWaiting(t *testing.T) {
	b := &apitest.Backend{Known: []api.Peer{bob()}, AskBlock: make(chan struct{})}
	c, _ := serve(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Ask(ctx, "bob", api.PeerAsk{Wait: true}, nil)
	if !errors.Is(err, &api.Error{Code: api.CodeTimeout}) {
		t.Errorf("err = %v, want timeout", err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !slices.Contains(b.Called(), "Ask left"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the backend was not told that its caller left")
		}
	}
}

func TestLongCallOutlivesTheCallTimeout(t *testing.T) {
	b := &apitest.Backend{Known: []api.Peer{bob()}, AskBlock: make(chan struct{})}
	socket := filepath.Join(shortDir(t), "s")
	server := localapi.New(localapi.Options{Socket: socket, Backend: b, Events: localapi.NewBroker(1), Log: discard(), CallTimeout: 50 * time.Millisecond})
	run(t, server)
	c := client.New(socket)
	defer c.Close()
	time.AfterFunc(400*time.Millisecond, func() { close(b.AskBlock) })
	if _, err := c.Ask(t.Context(), "bob", api.PeerAsk{Wait: true}, nil); err != nil {
		t.Error(err)
	}
}

func TestStopEndsStreamsAndTakesTheSocketAway(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	broker := localapi.NewBroker(4)
	server := localapi.New(localapi.Options{Socket: socket, Backend: &apitest.Backend{}, Events: broker, Log: discard()})
	stop := run(t, server)
	c := client.New(socket)
	defer c.Close()
	broker.Publish(api.Event{Message: "one"})
	var got []string
	var last error
	for e, err := range c.Events(t.Context(), client.EventsFrom{Follow: true}) {
		if last = err; err != nil {
			break
		}
		got = append(got, e.Message)
		stop()
	}
	if !slices.Equal(got, []string{"one"}) || !errors.Is(last, &api.Error{Code: api.CodeUnavailable}) {
		t.Errorf("got %q, then %v", got, last)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after stop: %v", err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, &api.Error{Code: api.CodeUnavailable}) {
		t.Errorf("call after stop: %v", err)
	}
}

func TestHandleAddsMetrics(t *testing.T) {
	socket := filepath.Join(shortDir(t), "s")
	server := localapi.New(localapi.Options{Socket: socket, Backend: &apitest.Backend{}, Events: localapi.NewBroker(1), Log: discard()})
	server.Handle("GET /metrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "kith_peers 1\n") }))
	run(t, server)
	if status, body := curl(t, socket, "GET", "/metrics", ""); status != 200 || body != "kith_peers 1\n" {
		t.Errorf("%d %q", status, body)
	}
}

func TestChangesAreLoggedWithWhoMadeThem(t *testing.T) {
	var log bytes.Buffer
	socket := filepath.Join(shortDir(t), "s")
	server := localapi.New(localapi.Options{Socket: socket, Backend: &apitest.Backend{}, Events: localapi.NewBroker(1), Log: slog.New(slog.NewTextHandler(&log, nil))})
	stop := run(t, server)
	curl(t, socket, "GET", "/v1/peers", "")
	curl(t, socket, "DELETE", "/v1/peers/bob", "")
	stop()
	if text := log.String(); strings.Contains(text, "GET") || !strings.Contains(text, `call="DELETE /v1/peers/bob" uid=`) {
		t.Error(text)
	}
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "kith")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// run runs server until the returned function is called, which waits for the end, or the test ends.
func run(t *testing.T, server *localapi.Server) (stop func()) {
	t.Helper()
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}
