//go:build lab

// Package page looks at the page of `kith web` in a real Chromium, with a kithd that lives in memory: what is shown, what keys and a mouse do,
// what axe-core says, and what other sites in the same browser can do. test/e2e has the page of a real one.
package page

import (
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/daemon/localapi"
	"kith.dev/daemon/web"
	"kith.dev/test/apitest"
	"kith.dev/test/chromium"
)

const soon = 10 * time.Second

const evil = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`

// world is a laptop called alice, with something in every part of the page, and peers that would like to be more than text.
func world() *apitest.Backend {
	now := time.Now()
	peer := func(name, id string) api.Peer {
		return api.Peer{
			Name: name, ID: id, ShortID: strings.ToLower(id[:7]), Source: api.SourceLAN, Addresses: []string{"10.0.0.2:6450"}, Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone,
		}
	}
	bob := peer("bob", "BOBBOBB-BOBBOBB")
	bob.Outgoing, bob.Offered, bob.Used = api.StateConnected, api.Resources{"cpu": "2", "memory": "4Gi"}, api.Resources{"cpu": "500m", "memory": "256Mi"}
	bob.Pods, bob.Tunnel = api.PeerPods{Abroad: 2}, api.Tunnel{Up: true, RTT: api.Duration(1843 * time.Microsecond)}
	carol := peer("carol", "CAROLCA-CAROLCA")
	carol.Incoming, carol.Pods, carol.Tunnel = api.StateUnreachable, api.PeerPods{Guests: 1}, api.Tunnel{}
	carol.Why = "no answer for 40 s"
	dave := peer("dave", "DAVEDAV-DAVEDAV")
	dave.Incoming, dave.Code = api.StateRequested, "402817"
	erin := peer("erin", "ERINERI-ERINERI")
	erin.Outgoing, erin.Confirm = api.StateRequested, &api.Confirmation{Code: "069210", Terms: []string{"cpu costs 0.02 EUR an hour", evil}, Expires: now.Add(time.Hour)}
	mallory := peer(evil, "MALLORY-MALLORY")
	mallory.Why, mallory.Gives = "declined: "+evil+"\u202e", &api.Gives{State: api.GivesSome, Resources: api.Resources{"cpu": evil}}
	why := func(namespace, name string, state api.PodState, causes ...api.Cause) api.Why {
		return api.Why{Namespace: namespace, Name: name, State: state, Causes: causes}
	}
	return &apitest.Backend{
		State: api.Status{
			Name: "alice", Mode: api.Autonomous, Engine: api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady, Version: "v1.36.3"},
			Sharing:  api.Sharing{Policy: "default", Share: "50%", Amounts: api.Resources{"cpu": "4", "memory": "8Gi", "pods": "55"}, Used: api.Resources{"cpu": "1"}},
			Problems: api.List[api.Problem]{{Severity: api.SeverityWarning, What: "the tunnel to carol is down", Why: evil, Do: "is UDP port 6450 open there?"}},
		},
		Known: []api.Peer{bob, carol, dave, erin, mallory},
		Pending: []api.Request{{
			ID: "dave-7f3a", Peer: "dave", PeerID: dave.ID, Direction: api.Incoming, Code: "402817", Asked: api.Resources{"cpu": "8", "memory": "1Gi"},
			Granted: api.Resources{"cpu": "2", "memory": "1Gi", "pods": "55"}, State: api.StateRequested, Address: "10.0.0.4", Expires: now.Add(9 * time.Minute),
		}},
		Shared: []api.Policy{{Name: "default", Generation: 3, Amounts: api.ShareOf("50%")}},
		Here:   []api.Guest{{Namespace: "shop-carolca", Name: "web-0", Consumer: "carol", ConsumerID: carol.ID, Phase: "Running", Resources: api.Resources{"cpu": "100m"}}},
		Use: []api.Top{
			{Peer: "bob", Direction: api.Outgoing, Granted: bob.Offered, Pods: []api.TopPod{
				{Namespace: "shop", Name: "web-1", Requested: api.Resources{"cpu": "250m"}, Used: api.Resources{"cpu": "12m", "memory": "20Mi"}},
				{Namespace: "shop", Name: "web-2", Requested: api.Resources{"cpu": "250m"}, Used: api.Resources{}},
			}},
			{Peer: "carol", Direction: api.Incoming, Granted: api.Resources{"cpu": "1", "memory": "2Gi"}},
		},
		Reasons: map[string]api.Why{
			"shop/web-2": why("shop", "web-2", api.PodFailing, api.Cause{Reason: api.CauseImage, What: "its image cannot be pulled", Why: evil, Do: "push it"}),
			"shop/web-3": why("shop", "web-3", api.PodWaiting, api.Cause{Reason: api.CauseNoRoom, What: "no laptop has room", Why: "bob: cpu 2 asked, 1.5 free"}),
		},
		Abroad: []api.Offload{{Namespace: "shop", Pods: api.OffloadPods{Home: 1, Abroad: 2}, Twins: api.List[api.Twin]{{Peer: "bob", Namespace: "shop-alice", Ready: true}}}},
		Accounts: []api.Account{
			{Contract: "c1", Peer: "bob", Direction: api.Outgoing, Receipts: api.List[api.Receipt]{
				{Sequence: 1, From: now.Add(-72 * time.Hour), To: now.Add(-48 * time.Hour), Used: map[string]string{"cpu": "86400000", "memory": "46385646796800"}, Total: "0"},
				{Sequence: 2, From: now.Add(-48 * time.Hour), To: now.Add(-24 * time.Hour), Used: map[string]string{"cpu": "43200000"}, Total: "0"},
			}},
			{Contract: "c2", Peer: "carol", Direction: api.Incoming, Open: &api.Receipt{From: now.Add(-time.Hour), To: now, Used: map[string]string{"cpu": "3600000"}, Total: "0"}},
		},
		Findings: []api.Finding{{Area: api.AreaDisk, Name: "space", State: api.CheckOK, What: "there is room"}, {Area: api.AreaNetwork, Name: "mtu", State: api.CheckFail, What: "an MTU is small", Why: evil, Do: "raise it"}},
	}
}

// view is a browser and the kithd that it looks at.
type view struct {
	*chromium.Page
	backend *apitest.Backend
	kithd   *client.Client
	page    *web.Server
}

// browser is the one Chromium for all tests; nil without one.
var browser *chromium.Browser

func TestMain(m *testing.M) {
	if _, err := exec.LookPath(chromium.Program); err != nil {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "kith-page")
	if err == nil {
		browser, err = chromium.Start(dir, dir, chromium.Here, "--host-resolver-rules=MAP evil.example 127.0.0.1")
	}
	if err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	browser.Close()
	os.RemoveAll(dir)
	os.Exit(code)
}

func start(t *testing.T) view {
	t.Helper()
	if browser == nil {
		t.Skip("there is no chromium: make deps")
	}
	b := world()
	page := web.New(web.Options{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Changed: func() {}})
	events := localapi.NewBroker(16)
	kithd := client.New(apitest.ServeWith(t, b, events, page))
	events.Publish(api.Event{Type: api.EventPeerConnected, Peer: "bob", Message: "bob is connected"})
	events.Publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Message: evil})
	t.Cleanup(kithd.Close)
	t.Cleanup(page.Close)
	return view{browser.Page(t), b, kithd, page}
}

func (v view) address(t *testing.T, options api.WebOptions) string {
	t.Helper()
	opened, err := v.kithd.Web(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return opened.URL
}

// calls are those of the backend whose line begins so.
func (v view) calls(begins string) (all []string) {
	for _, c := range v.backend.Called() {
		if strings.HasPrefix(c, begins) {
			all = append(all, c)
		}
	}
	return all
}

func (v view) focused(t *testing.T) (id string) {
	t.Helper()
	v.Eval(`document.activeElement.id || document.activeElement.innerText`, &id)
	return id
}

// quiet fails when the browser complained: of an exception in a script, or of what the page's own policy forbids it.
func (v view) quiet(t *testing.T) {
	t.Helper()
	for _, said := range v.Said() {
		t.Errorf("the browser says %s", said)
	}
}

func axe(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../build/axe.min.js")
	if err != nil {
		t.Skipf("%v: scripts/axe.sh fetches it", err)
	}
	return string(text)
}

func TestAllIsShownAndNothingIsMarkup(t *testing.T) {
	v := start(t)
	v.Open(v.address(t, api.WebOptions{}))
	for selector, text := range map[string]string{
		"#name": "alice", "#state": "Autonomous · Kubernetes v1.36.3", "#waiting-list": "dave asks to use this laptop", "#problems-list": "the tunnel to carol is down",
		"#map-picture": "1.8 ms", "#peers": "CPU 0.5 of 2, memory 256 MiB of 4 GiB, 2 pods there", "#pods-list": "no laptop has room", "#offloads": "shop",
		"#share-cpu-value": "50 %", "#usage-picture": "core hours of yours at peers: 36", "#events-list": "bob is connected",
	} {
		v.WaitText(soon, selector, text)
	}
	if text := v.Text("#waiting-list"); !strings.Contains(text, "erin accepted") || !strings.Contains(text, "402 817") || !strings.Contains(text, "069 210") {
		t.Errorf("who waits: %q", text)
	}
	if text := v.Text("#peers"); !strings.Contains(text, "<img src=x onerror") {
		t.Errorf("mallory is not shown as is: %q", text)
	}
	v.Click("#doctor-look", "Look")
	v.WaitText(soon, "#doctor-sum", "1 ok, 0 warnings, 1 failed.")
	v.Click("#confirm-ERINERI-ERINERI", "Answer")
	v.WaitText(soon, "#question", "cpu costs 0.02 EUR an hour")
	v.Press("Escape")
	var harm int
	v.Eval(`document.querySelectorAll("[onerror],img[src=x],main script").length + (window.pwned ?? 0)`, &harm)
	if harm != 0 {
		t.Errorf("text of peers became markup")
	}
	var where string
	if v.Eval(`location.href`, &where); strings.Contains(where, "#") {
		t.Errorf("the ticket stays in the address: %s", where)
	}
	v.quiet(t)
	first := []time.Duration{v.FirstPaint()}
	for range 4 {
		v.Reload()
		v.WaitText(soon, "#name", "alice")
		first = append(first, v.FirstPaint())
	}
	t.Logf("first paint after %v", first)
}

func TestEverythingByKeys(t *testing.T) {
	v := start(t)
	v.Open(v.address(t, api.WebOptions{}))
	v.WaitText(soon, "#waiting-list", "dave asks")
	v.Press("Tab")
	if at := v.focused(t); at != "To the content" {
		t.Errorf("the first key leads to %q", at)
	}
	v.Press("Enter", "Tab")
	if at := v.focused(t); at != "answer-dave-7f3a" {
		t.Fatalf("after the link to the content comes %q", at)
	}
	v.Press("Enter")
	v.WaitText(soon, "#question", "Accept only if its owner sees the same digits.")
	if at := v.focused(t); at != "Later" {
		t.Errorf("Enter would choose %q", at)
	}
	v.Press("Escape")
	v.Wait(soon, "the page without a question", `!document.getElementById("question").open`)
	if at := v.focused(t); at != "answer-dave-7f3a" || len(v.calls("Accept")) != 0 {
		t.Errorf("at %q, %q", at, v.calls("Accept"))
	}
	// What is drawn anew keeps the focus.
	v.backend.Set(func() { v.backend.Pending[0].Granted = api.Resources{"cpu": "1", "memory": "1Gi", "pods": "55"} })
	v.Wait(soon, "the new amount", `!document.querySelector("#waiting-list tbody").innerText.includes("2")`)
	if at := v.focused(t); at != "answer-dave-7f3a" {
		t.Errorf("the focus went to %q", at)
	}
	v.Press("Enter")
	v.WaitText(soon, "#question", "402 817")
	v.Press("Tab", "Enter")
	v.Wait(soon, "the page without the request", `!document.getElementById("waiting-list").innerText.includes("dave asks")`)
	if got := v.calls("Accept"); !slices.Equal(got, []string{"Accept dave-7f3a cpu 1, memory 1Gi, pods 55"}) {
		t.Errorf("%q", got)
	}
	v.WaitText(soon, "#said", "dave was accepted.")

	v.Eval(`document.getElementById("share-cpu").focus()`, nil)
	v.Press("ArrowLeft", "ArrowLeft")
	v.WaitText(soon, "#share-would", "It would be: cpu 50% → 40%")
	if calls := v.calls("SetPolicy"); slices.ContainsFunc(calls, func(c string) bool { return !strings.Contains(c, "dry") }) {
		t.Errorf("it was changed before it was applied: %q", calls)
	}
	v.Eval(`document.getElementById("share-apply").focus()`, nil)
	v.Press("Enter")
	v.WaitText(soon, "#share-would", "Changed: cpu 50% → 40%")
	v.Click("#share-undo", "Undo")
	v.WaitText(soon, "#share-cpu-value", "50 %")
	v.quiet(t)
}

// TestATabHasOneStreamAndNoneWhileNobodySeesIt: a browser has six connections to a place, for all of its tabs.
func TestATabHasOneStreamAndNoneWhileNobodySeesIt(t *testing.T) {
	v := start(t)
	v.Open(v.address(t, api.WebOptions{}))
	v.WaitText(soon, "#events-list", "bob is connected")
	const over = `performance.getEntriesByType("resource").filter(e => e.name.includes("/api/")).map(e => e.name.replace(/.*\/v1/, ""))`
	v.Wait(soon, "the end of the question for events", over+`.includes("/events")`)
	var ended []string
	if v.Eval(over, &ended); slices.Contains(ended, "/snapshot?follow=true") {
		t.Fatalf("these have ended: %q", ended)
	}
	seen := func(hidden string) {
		v.Eval(`Object.defineProperty(document, "hidden", {configurable: true, value: `+hidden+`}); document.dispatchEvent(new Event("visibilitychange"))`, nil)
	}
	seen("true")
	v.Wait(soon, "the end of the stream", over+`.includes("/snapshot?follow=true")`)
	v.backend.Set(func() { v.backend.State.Name = "alice2" })
	seen("false")
	v.WaitText(soon, "#name", "alice2")
	v.quiet(t)
}

// TestUseIsAskedForWhenPodsMoved: kubelets measure it, peers' too, and what else a snapshot has may change as often as a peer likes.
func TestUseIsAskedForWhenPodsMoved(t *testing.T) {
	v := start(t)
	for i := range v.backend.Known {
		v.backend.Known[i].Pods = api.PeerPods{} // none by the clock
	}
	v.Open(v.address(t, api.WebOptions{}))
	rounds := func(n int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); len(v.calls("NotRunning")) < n; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no round %d", n)
			}
		}
	}
	rounds(1)
	v.backend.Set(func() { v.backend.Known[1].Why = "carol says something else" })
	v.WaitText(soon, "#peers", "carol says something else")
	rounds(2)
	if got := v.calls("Top"); len(got) != 1 {
		t.Errorf("a word of a peer had it measured: %q", got)
	}
	v.backend.Set(func() { v.backend.Known[0].Pods.Abroad = 3 })
	v.WaitText(soon, "#peers", "3 pods there")
	rounds(3)
	if got := v.calls("Top"); len(got) != 2 {
		t.Errorf("pods moved: %q", got)
	}
}

func TestWhatIsNotKnownIsNotSaidToBeNothing(t *testing.T) {
	v := start(t)
	v.backend.State.Engine.State = api.EngineStarting
	v.Open(v.address(t, api.WebOptions{}))
	v.WaitText(soon, "#usage-picture", "What was used is not known now")
	v.WaitText(soon, "#pods-list", "is not known while")
	v.backend.Set(func() { v.backend.State.Engine.State = api.EngineReady })
	v.WaitText(soon, "#usage-picture", "core hours of yours at peers: 36")
	v.backend.Set(func() { v.backend.State.Engine.State = api.EngineAsleep })
	v.WaitText(soon, "#usage-picture", "What came to it since is not known now")
	v.WaitText(soon, "#usage-picture", "core hours of yours at peers: 36")
	v.quiet(t)
}

// TestSomebodyElseShares has the policy change by another way while the owner moves a slider, and after the owner applied it.
func TestSomebodyElseShares(t *testing.T) {
	v := start(t)
	v.Open(v.address(t, api.WebOptions{}))
	v.WaitText(soon, "#share-cpu-value", "50 %")
	v.Eval(`document.getElementById("share-cpu").focus()`, nil)
	v.Press("ArrowLeft")
	v.WaitText(soon, "#share-would", "It would be: cpu 50% → 45%")
	elsewhere := func(share string) {
		v.backend.Set(func() {
			v.backend.Shared[0].Amounts = api.ShareOf(share)
			v.backend.Shared[0].Generation++
			v.backend.State.Sharing.Why = "shared elsewhere: " + share
		})
		v.WaitText(soon, "#share-now", "shared elsewhere: "+share)
	}
	elsewhere("20%")
	v.Click("#share-apply", "Apply")
	v.WaitText(soon, "#failed", "the sharing policy default has changed since")
	v.Said() // of the refusal
	v.backend.Set(func() {
		if got := v.backend.Shared[0].Amounts; got["cpu"] != "20%" || got["memory"] != "20%" {
			t.Errorf("it is %v", got)
		}
	})
	v.Click("#share-reset", "Leave")
	v.WaitText(soon, "#share-cpu-value", "20 %")
	v.Eval(`document.getElementById("share-cpu").focus()`, nil)
	v.Press("ArrowLeft")
	v.WaitText(soon, "#share-would", "It would be: cpu 20% → 15%")
	v.Click("#share-apply", "Apply")
	v.WaitText(soon, "#share-would", "Changed: cpu 20% → 15%")
	v.Wait(soon, "a way back", `!document.getElementById("share-undo").hidden`)
	elsewhere("30%")
	v.Wait(soon, "no way back over another's change", `document.getElementById("share-undo").hidden`)
	v.quiet(t)
}

func TestAQuestionThatIsNoneAnyMoreCloses(t *testing.T) {
	v := start(t)
	v.Open(v.address(t, api.WebOptions{}))
	v.Click("#answer-dave-7f3a", "Answer")
	v.WaitText(soon, "#question", "402 817")
	if text := v.Text("#question"); strings.Contains(text, "network") {
		t.Errorf("it has a network: %q", text)
	}
	v.backend.Set(func() { v.backend.Pending[0].Network = api.NetworkNone })
	v.Wait(soon, "the page without a question", `!document.getElementById("question").open`)
	v.WaitText(soon, "#waiting-list", "There would be no network between the clusters.")
	v.Click("#answer-dave-7f3a", "Answer")
	v.WaitText(soon, "#question", "There would be no network between the clusters.")
	v.backend.Set(func() { v.backend.Pending[0].Granted = api.Resources{"cpu": "8"} })
	v.Wait(soon, "the page without a question", `!document.getElementById("question").open`)
	v.WaitText(soon, "#said", "has changed")
	if got := v.calls("Accept"); len(got) != 0 {
		t.Error(got)
	}
}

func TestAxeFindsNothingSerious(t *testing.T) {
	script := axe(t)
	v := start(t)
	v.Open(v.address(t, api.WebOptions{}))
	v.WaitText(soon, "#waiting-list", "dave asks")
	v.WaitText(soon, "#pods-list", "no laptop has room")
	v.Click("#doctor-look", "Look")
	v.WaitText(soon, "#doctor-sum", "1 failed.")
	for _, dark := range []bool{false, true} {
		v.Dark(dark)
		for _, width := range []int{1100, 400} {
			v.Size(width, 1400)
			for _, broken := range v.Axe(script) {
				t.Errorf("dark %v, %d wide: %s", dark, width, broken)
			}
		}
		v.Size(1100, 1400)
		v.Click("#answer-dave-7f3a", "Answer")
		for _, broken := range v.Axe(script) {
			t.Errorf("dark %v, with a question: %s", dark, broken)
		}
		v.Press("Escape")
	}
}

func TestAPageToLookAtHasNoButtonsThatChange(t *testing.T) {
	v := start(t)
	v.Open(v.address(t, api.WebOptions{ReadOnly: true}))
	v.WaitText(soon, "#waiting-list", "dave asks")
	var can int
	v.Eval(`[...document.querySelectorAll("#waiting button, #doctor button, #share :enabled:is(input, button)")].filter(e => e.checkVisibility()).length`, &can)
	if can != 0 {
		t.Errorf("%d can be used", can)
	}
	v.quiet(t)
}

func TestAPageEndsAndIsGoneOnWith(t *testing.T) {
	v := start(t)
	url := v.address(t, api.WebOptions{})
	v.Open(url)
	v.WaitText(soon, "#name", "alice")
	v.Reload()
	v.WaitText(soon, "#waiting-list", "dave asks")
	v.quiet(t)
	v.Open("about:blank")
	v.Open(url) // from the history
	v.WaitText(soon, "#failed", "this page has ended")
	v.Said()
	v.Open(v.address(t, api.WebOptions{}))
	v.WaitText(soon, "#waiting-list", "dave asks")
	v.backend.Set(func() {
		v.backend.Fail = &api.Error{Code: api.CodeNotReady, Message: "the cluster is not there", Do: "wait"}
	})
	v.WaitText(soon, "#failed", "the cluster is not there — wait")
	v.backend.Set(func() { v.backend.Fail, v.backend.State.Name = nil, "alice2" })
	v.WaitText(soon, "#name", "alice2")
	v.Wait(soon, "the page without an error", `document.getElementById("failed").hidden`)
	v.page.Close()
	v.WaitText(soon, "#failed", "kithd does not answer")
}

// TestAnotherSiteInTheSameBrowser has a page of another site try all that a browser lets it, while the owner has this page open.
func TestAnotherSiteInTheSameBrowser(t *testing.T) {
	v := start(t)
	url := v.address(t, api.WebOptions{})
	v.Open(url)
	v.WaitText(soon, "#name", "alice")
	base, _, _ := strings.Cut(url, "/#")
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>another site</title>")
	}))
	defer other.Close()
	v.Open(other.URL)
	for what, try := range map[string]string{
		"read":      `fetch(BASE + "/api/v1/snapshot").then(r => r.text())`,
		"a bearer":  `fetch(BASE + "/api/v1/snapshot", {headers: {Authorization: "Bearer x"}}).then(r => r.text())`,
		"the page":  `fetch(BASE + "/").then(r => r.text())`,
		"a post":    `fetch(BASE + "/api/v1/requests/dave-7f3a/accept", {method: "POST"}).then(r => r.text())`,
		"a script":  `new Promise((yes, no) => { const e = document.createElement("script"); e.src = BASE + "/app.js"; e.type = "module"; e.onload = yes; e.onerror = () => no("no"); document.head.append(e); })`,
		"a picture": `new Promise((yes, no) => { const e = new Image(); e.src = BASE + "/kith.svg"; e.onload = yes; e.onerror = () => no("no"); })`,
	} {
		var got string
		v.Eval(`(`+strings.ReplaceAll(try, "BASE", `"`+base+`"`)+`).then(x => "got " + x, e => "no")`, &got)
		if got != "no" {
			t.Errorf("%s: %.80s", what, got)
		}
	}
	var blind string
	v.Eval(`fetch("`+base+`/api/v1/requests/dave-7f3a/accept", {method: "POST", mode: "no-cors", body: "{}"}).then(r => r.type, e => String(e))`, &blind)
	if got := v.calls("Accept"); len(got) != 0 {
		t.Errorf("a blind post (%s) came through: %q", blind, got)
	}
	var frame string
	v.Eval(`new Promise(done => { const e = document.createElement("iframe"); e.src = "`+base+`/"; e.onload = () => { try { done(e.contentDocument ? "readable" : "closed"); } catch { done("closed"); } }; document.body.append(e); })`, &frame)
	if frame != "closed" {
		t.Errorf("a frame of the page is %s", frame)
	}
	// A name that its owner has lead here now.
	v.Open("http://evil.example:" + port + "/")
	if text := v.Text("body"); !strings.Contains(text, "nobody of that name is here") {
		t.Errorf("by another name: %q", text)
	}
	var status int
	v.Eval(`fetch("/api/v1/snapshot").then(r => r.status)`, &status)
	if status != http.StatusMisdirectedRequest {
		t.Errorf("by another name: %d", status)
	}
}
