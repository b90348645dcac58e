package menu_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/tray/menu"
)

var update = flag.Bool("update", false, "write testdata anew")

func init() { time.Local = time.UTC }

var kinds = []menu.Kind{{Name: "request", Label: "Somebody asks", On: true}, {Name: "peer", Label: "A peer is lost or back"}}

// alice is a cluster that is well, with nobody around.
func alice() menu.State {
	return menu.State{Link: menu.Up, Kinds: kinds, Snapshot: api.Snapshot{Status: api.Status{
		Name: "alice", Mode: api.Autonomous,
		Engine:  api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady, Version: "v1.36.3"},
		Sharing: api.Sharing{Policy: "default", Share: "50%", Amounts: api.Resources{"cpu": "1", "memory": "2Gi"}},
	}}}
}

func peer(name string) api.Peer {
	return api.Peer{Name: name, ID: "ID-" + name, ShortID: "id-" + name, Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone}
}

func request(id, from string) api.Request {
	return api.Request{
		ID: id, Peer: from, PeerID: "ID-" + from, Direction: api.Incoming, Code: "069210", State: api.StateRequested,
		Asked:   api.Resources{"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
		Granted: api.Resources{"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi", "pods": "55"},
		Expires: time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC),
	}
}

var (
	offer = api.Resources{"cpu": "800m", "memory": "4Gi", "pods": "20"}
	used  = api.Resources{"cpu": "300m", "memory": "512Mi", "pods": "2"}
)

// scenes are states worth looking at: testdata has the menu of each.
func scenes() map[string]menu.State {
	all := map[string]menu.State{}
	scene := func(name string, change func(s *menu.State)) {
		s := alice()
		change(&s)
		all[name] = s
	}
	status := func(s *menu.State) *api.Status { return &s.Snapshot.Status }
	scene("alone", func(*menu.State) {})
	scene("looked", func(s *menu.State) {
		s.Looked, s.Fixable = true, []api.Finding{{Name: "inotify", Fix: []string{"sysctl -w a=1"}}, {Name: "tun", Fix: []string{"modprobe tun"}}}
	})
	scene("busy", func(s *menu.State) {
		s.Looked, s.Fixable = true, []api.Finding{{Name: "inotify", Fix: []string{"sysctl -w a=1"}}}
		s.Doing = map[string]string{menu.DoingDiagnosis: "", menu.DoingMend: "", menu.DoingReport: ""}
	})
	scene("waiting", func(s *menu.State) { *s = menu.State{Kinds: kinds} })
	scene("gone", func(s *menu.State) {
		*s = menu.State{Link: menu.Gone, Kinds: kinds, Why: &api.Error{
			Code: api.CodeUnavailable, Message: "kithd is not running", Reason: "nobody answers at /run/kith/kith.sock",
			Do: "start it: sudo systemctl start kithd; or name its socket with --socket",
		}}
	})
	scene("forbidden", func(s *menu.State) {
		*s = menu.State{Link: menu.Forbidden, Why: &api.Error{
			Code: api.CodeForbidden, Message: "you may not talk to kithd", Reason: "it is for root and members of the group kith",
			Do: "ask an administrator: usermod -aG kith ann; then log in again",
		}}
	})
	scene("old-daemon", func(s *menu.State) {
		*s = menu.State{Link: menu.Failed, Why: &api.Error{
			Code: api.CodeUnsupported, Message: "the local API has no call GET /v1/snapshot", Reason: "kith and kithd may be of different versions", Do: "`kith version` shows both",
		}}
	})
	scene("starting", func(s *menu.State) {
		status(s).Engine = api.Engine{Kind: api.EngineBuiltin, State: api.EngineStarting, Why: "waiting for the API server"}
		status(s).Sharing = api.Sharing{}
		status(s).Problems = []api.Problem{{Kind: api.ProblemEngine, Severity: api.SeverityWarning, What: "the local Kubernetes is starting"}}
		s.Snapshot.Peers = []api.Peer{peer("bob")}
	})
	scene("no-engine", func(s *menu.State) {
		status(s).Engine = api.Engine{Kind: api.EngineNone, State: api.EngineStopped}
		s.Snapshot.Peers = []api.Peer{peer("bob")}
	})
	scene("asleep", func(s *menu.State) {
		status(s).Engine.State, status(s).Engine.Why = api.EngineAsleep, "nobody needs it; it starts when somebody does"
		s.Snapshot.Peers = []api.Peer{peer("bob")}
	})
	scene("troubles", func(s *menu.State) {
		status(s).Engine.State, status(s).Engine.Why = api.EngineDegraded, "the disk is 96 % full"
		for _, what := range []string{"bob cannot be reached", "the tunnel to carol is down", "the clock of dave is 3 min ahead", "erin was refused", "frank too"} {
			status(s).Problems = append(status(s).Problems, api.Problem{Severity: api.SeverityWarning, What: what})
		}
		status(s).Problems = append(status(s).Problems, api.Problem{Severity: api.SeverityInfo, What: "bob asks for cpu 1"})
		s.Note = "bob was not asked: bob does not answer"
	})
	scene("request", func(s *menu.State) {
		known := request("carol-1", "carol")
		known.Code, known.Asked = "", nil
		more := request("erin-1", "erin") // has a contract, and would have more of one thing and all there is of another
		more.InForce = api.Resources{"cpu": "250m", "memory": "512Mi", "ephemeral-storage": "1Gi", "pods": "20"}
		more.Asked = api.Resources{"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi", "pods": "1000"}
		none := request("frank-1", "frank")
		none.Granted, none.Refusal = nil, "sharing is paused (SharingPolicy default)"
		out := request("x", "dave")
		out.Direction = api.Outgoing
		s.Snapshot.Requests = []api.Request{request("bob-1", "bob"), known, more, none, out}
		s.Doing = map[string]string{"carol-1": "accepting"}
		status(s).Counts.Requests = 4
		bob := peer("bob")
		bob.Incoming = api.StateRequested
		s.Snapshot.Peers = []api.Peer{bob}
	})
	scene("confirm", func(s *menu.State) {
		expires := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
		for _, one := range []struct {
			name string
			asks api.Confirmation
		}{
			{"carol", api.Confirmation{Code: "069210", Expires: expires}},
			{"dave", api.Confirmation{Terms: []string{"cpu costs 0.02 EUR an hour"}}},
			{"erin", api.Confirmation{Code: "402817", Terms: []string{"pods may be privileged"}}},
		} {
			p := peer(one.name)
			p.Outgoing, p.Code, p.Confirm = api.StateRequested, one.asks.Code, &one.asks
			s.Snapshot.Peers = append(s.Snapshot.Peers, p)
		}
		frank := peer("frank") // was accepted here, and its owner compares
		frank.Incoming, frank.Code = api.StateRequested, "117903"
		s.Snapshot.Peers = append(s.Snapshot.Peers, frank)
		used := peer("bob")
		used.Outgoing, used.Tunnel.Up = api.StateConnected, true
		s.Snapshot.Peers = append(s.Snapshot.Peers, used)
		s.Doing = map[string]string{"ID-erin": "confirming"}
	})
	scene("peers", func(s *menu.State) {
		states := []struct {
			name   string
			change func(p *api.Peer)
		}{
			{"connected", func(p *api.Peer) {
				p.Outgoing, p.Offered, p.Used, p.Pods.Abroad, p.Tunnel.Up = api.StateConnected, offer, used, 2, true
			}},
			{"both", func(p *api.Peer) {
				p.Outgoing, p.Incoming, p.Offered, p.Used, p.Pods.Guests, p.Tunnel.Up = api.StateConnected, api.StateConnected, offer, used, 7, true
			}},
			{"tunnel", func(p *api.Peer) { p.Outgoing = api.StateConnected }},
			{"asked", func(p *api.Peer) { p.Outgoing, p.Code = api.StateRequested, "402817" }},
			{"signed", func(p *api.Peer) { p.Outgoing = api.StateContracted }},
			{"far", func(p *api.Peer) { p.Outgoing, p.Reachable, p.Pods.Abroad = api.StateUnreachable, false, 1 }},
			{"ending", func(p *api.Peer) { p.Outgoing = api.StateEnding }},
			{"declined", func(p *api.Peer) { p.Outgoing, p.Why = api.StateDeclined, "declined by its owner, 2 min ago" }},
			{"expired", func(p *api.Peer) { p.Outgoing = api.StateExpired }},
			{"consumer", func(p *api.Peer) { p.Incoming, p.Pods.Guests = api.StateConnected, 3 }},
			{"leaving", func(p *api.Peer) { p.Incoming = api.StateEnding }},
			{"lost", func(p *api.Peer) { p.Incoming, p.Reachable = api.StateUnreachable, false }},
			{"stranger", func(*api.Peer) {}},
			{"giver", func(p *api.Peer) { p.Gives = &api.Gives{State: api.GivesSome, Resources: offer} }},
			{"changing", func(p *api.Peer) {
				p.Outgoing, p.Offered, p.Asked, p.Tunnel.Up = api.StateConnected, offer, api.Resources{"cpu": "2", "memory": "4Gi", "pods": "20"}, true
			}},
			{"pausing", func(p *api.Peer) { p.Gives = &api.Gives{State: api.GivesPaused, Why: "paused"} }},
			{"miser", func(p *api.Peer) { p.Gives = &api.Gives{State: api.GivesNothing, Why: "nothing"} }},
			{"silent", func(p *api.Peer) { p.Reachable = false }},
			{"busy", func(*api.Peer) {}},
		}
		for _, one := range states {
			p := peer(one.name)
			one.change(&p)
			s.Snapshot.Peers = append(s.Snapshot.Peers, p)
		}
		s.Doing = map[string]string{"ID-busy": "asking"}
		status(s).Counts = api.Counts{PodsAbroad: 3, Guests: 1}
	})
	scene("guests", func(s *menu.State) { status(s).Counts.Guests, status(s).Awake = 3, &api.Awake{} })
	scene("awake", func(s *menu.State) {
		until := time.Date(2026, 3, 2, 17, 1, 0, 0, time.UTC)
		status(s).Counts.Guests, status(s).Awake = 3, &api.Awake{Kept: true, Until: until, UntilGuestsEnd: true}
	})
	scene("awake-for", func(s *menu.State) {
		status(s).Awake = &api.Awake{Kept: true, Until: time.Date(2026, 3, 2, 17, 1, 0, 0, time.UTC)}
		s.Doing = map[string]string{menu.DoingAwake: ""}
	})
	scene("paused", func(s *menu.State) {
		status(s).Sharing = api.Sharing{Policy: "default", Amounts: api.Resources{"cpu": "2", "memory": "3Gi", "nvidia.com/gpu": "1"}, Paused: true}
	})
	corp := func(s *menu.State) *api.Tether {
		p, t := peer("corp"), &api.Tether{Peer: "corp", Step: "tethered", Since: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)}
		p.Incoming, p.Pods.Guests, p.Tether = api.StateConnected, 3, &api.PeerTether{Role: api.Laptop, Step: "tethered"}
		s.Snapshot.Peers, status(s).Mode, status(s).Tether = []api.Peer{p, peer("bob")}, api.Tethered, t
		return t
	}
	scene("tethered", func(s *menu.State) { corp(s) })
	scene("tethered-lost", func(s *menu.State) {
		t := corp(s)
		t.DownSince, t.Until = t.Since.Add(time.Hour), t.Since.Add(90*time.Minute)
		s.Snapshot.Peers[0].Incoming, s.Snapshot.Peers[0].Reachable = api.StateUnreachable, false
	})
	scene("tethering", func(s *menu.State) {
		t := corp(s)
		t.Step, t.Why, t.Code, status(s).Mode = "asking", "waiting for the owner of corp to accept", "069210", api.Tethering
		p := peer("corp")
		p.Outgoing, p.Code = api.StateRequested, "069210"
		s.Snapshot.Peers = []api.Peer{p}
		s.Doing = map[string]string{menu.DoingTether: "tethering"}
	})
	scene("untethering", func(s *menu.State) {
		t := corp(s)
		t.Step, t.Why, status(s).Mode = "draining", "corp takes away 3 pods", api.Untethering
	})
	scene("tether-one", func(s *menu.State) { s.Snapshot.Peers = []api.Peer{peer("corp")} })
	scene("tether-asked", func(s *menu.State) {
		s.Snapshot.Peers, s.Doing = []api.Peer{peer("corp")}, map[string]string{menu.DoingTether: "asking what a tether to corp means"}
	})
	scene("tether-unknown", func(s *menu.State) { s.Snapshot.Peers, s.NoTether = []api.Peer{peer("corp")}, true })
	scene("company", func(s *menu.State) {
		status(s).Counts.Laptops = 2
		for _, name := range []string{"alice", "erin"} {
			p := peer(name)
			p.Outgoing, p.Offered, p.Tunnel.Up, p.Tether = api.StateConnected, offer, true, &api.PeerTether{Role: api.Company, Step: "tethered"}
			s.Snapshot.Peers = append(s.Snapshot.Peers, p)
		}
		s.Snapshot.Peers[1].Outgoing, s.Snapshot.Peers[1].Reachable = api.StateUnreachable, false
		carol, asks := peer("carol"), request("carol-1", "carol")
		carol.Incoming = api.StateRequested
		asks.Tether, asks.Asked, asks.Granted = true, nil, nil
		s.Snapshot.Peers, s.Snapshot.Requests = append(s.Snapshot.Peers, carol), []api.Request{asks}
	})
	scene("six", func(s *menu.State) { crowd(s, 6, 0) })
	scene("twenty", func(s *menu.State) { crowd(s, 20, 2) })
	scene("twenty-shallow", func(s *menu.State) { crowd(s, 20, 0); s.Shallow = true })
	scene("crowd", func(s *menu.State) { crowd(s, 70, 30) })
	scene("hostile", func(s *menu.State) {
		for i, n := range nasty {
			p := peer(n)
			p.ID = fmt.Sprint(i)
			p.Outgoing, p.Why = api.StateDeclined, n
			if i%2 == 1 {
				p.Confirm = &api.Confirmation{Code: n, Terms: []string{n}}
			}
			s.Snapshot.Peers = append(s.Snapshot.Peers, p)
			r := request(fmt.Sprint("r", i), n)
			r.Code, r.Asked, r.Granted, r.InForce = n, api.Resources{n: n}, api.Resources{"cpu": n}, api.Resources{n: "1"}
			s.Snapshot.Requests = append(s.Snapshot.Requests, r)
		}
	})
	return all
}

func crowd(s *menu.State, peers, requests int) {
	for i := range peers {
		p := peer(fmt.Sprintf("laptop-%02d", i))
		if i == 40 || i == 3 {
			p.Outgoing, p.Offered, p.Used, p.Tunnel.Up = api.StateConnected, offer, used, true
		}
		p.Reachable = i%10 != 0
		s.Snapshot.Peers = append(s.Snapshot.Peers, p)
	}
	for i := range requests {
		s.Snapshot.Requests = append(s.Snapshot.Requests, request(fmt.Sprintf("guest-%02d", i), fmt.Sprintf("guest-%02d", i)))
	}
}

var nasty = []string{
	"<b>bold</b> & <a href='x'>here</a>", "two\nlines\r\nand\ttab", "\u202eevil\u202d\u2066", "שלום", "🦊 fox 👩‍👩‍👧", strings.Repeat("x", 300),
	"under_score_name", "Z̷̙̪̈́̕a̶l̸g̵o\u0301\u0301\u0301\u0301\u0301", "", "   ", "\x1b[31mred\x1b[0m", "a\xffb", "\u0301first",
	"bob · its key is known", "a\u200db",
}

func TestMenusAreAsTheyWere(t *testing.T) {
	for name, s := range scenes() {
		file := filepath.Join("testdata", name+".txt")
		got := "icon: " + string(menu.Icon(s)) + "\ntooltip: " + menu.Tooltip(s) + "\n\n" + menu.Text(menu.Of(s))
		if *update {
			if err := errorOf(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(got), 0o644)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s is not as in %s (go test -update writes it anew):\n%s", name, file, got)
		}
	}
}

func errorOf(errs ...error) error { return cmp.Or(errs...) }

// flat gives the items of a menu and of all its submenus.
func flat(items []menu.Item) (all []menu.Item) {
	for _, i := range items {
		all = append(append(all, i), flat(i.Items)...)
	}
	return all
}

func TestEveryItemHasAnIDOfItsOwnAndCanBeRead(t *testing.T) {
	for name, s := range scenes() {
		seen := map[string]bool{}
		for _, i := range flat(menu.Of(s)) {
			if i.ID == "" || seen[i.ID] {
				t.Errorf("%s: ID %q of %q is not its own", name, i.ID, i.Label)
			}
			seen[i.ID] = true
			if strings.ContainsFunc(i.Label, unicode.IsControl) || strings.ContainsAny(i.Label, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u200b") ||
				!utf8.ValidString(i.Label) || utf8.RuneCountInString(i.Label) > 300 {
				t.Errorf("%s: %q", name, i.Label)
			}
			if !i.Separator() && !i.Disabled && (i.Action.Verb == menu.Nothing) != (len(i.Items) > 0) {
				t.Errorf("%s: a click on %q would do nothing, or two things", name, i.Label)
			}
		}
		lists := [][]menu.Item{menu.Of(s)}
		for _, i := range flat(menu.Of(s)) {
			if len(i.Items) > 0 {
				lists = append(lists, i.Items)
			}
		}
		for _, items := range lists {
			if items[0].Separator() || items[len(items)-1].Separator() {
				t.Errorf("%s: %v begins or ends with a separator", name, items)
			}
			for i := range items[1:] {
				if items[i].Separator() && items[i+1].Separator() {
					t.Errorf("%s: two separators in a row at %s", name, items[i].ID)
				}
			}
		}
	}
}

// height is what a menu needs on a screen where lines are as high as in the highest of the panels that were tried.
func height(items []menu.Item) (pixels int) {
	for _, i := range items {
		if pixels += 33; i.Separator() {
			pixels -= 20
		}
	}
	return pixels
}

func TestAMenuFitsTheScreen(t *testing.T) {
	for _, c := range []struct{ peers, requests, most int }{{0, 0, 640}, {1, 0, 640}, {6, 0, 640}, {6, 2, 640}, {20, 0, 768}, {20, 20, 768}, {500, 500, 768}} {
		s := alice()
		crowd(&s, c.peers, c.requests)
		if got := height(menu.Of(s)); got > c.most {
			t.Errorf("%d peers, %d requests: %d pixels, %d is the screen", c.peers, c.requests, got, c.most)
		}
	}
}

// Twenty peers can all be reached, those that matter first.
func TestNoPeerIsLeftOut(t *testing.T) {
	s := alice()
	crowd(&s, 20, 0)
	for _, p := range s.Snapshot.Peers {
		if i, ok := find(menu.Of(s), "peer/"+p.ID); !ok || len(i.Items) == 0 {
			t.Errorf("%s: %+v", p.Name, i)
		}
	}
	for _, i := range menu.Of(s) {
		if strings.HasPrefix(i.ID, "peer/") {
			if i.ID != "peer/ID-laptop-03" {
				t.Error("the one in use comes after", i.ID)
			}
			break
		}
	}
}

func TestWhatWaitsForTheOwnerIsTheFirstLine(t *testing.T) {
	all := scenes()
	for name, want := range map[string]string{"request": "answer/bob-1", "company": "answer/carol-1", "confirm": "confirm/ID-carol", "alone": "head"} {
		if got := menu.Of(all[name])[0].ID; got != want {
			t.Errorf("%s: the first line is %s, want %s", name, got, want)
		}
	}
}

func TestATetheredLaptopSharesNothingOfItsOwn(t *testing.T) {
	all := scenes()
	for _, name := range []string{"tethered", "tethered-lost", "tethering", "untethering"} {
		s := all[name]
		if i, ok := find(menu.Of(s), "share"); ok {
			t.Errorf("%s: %+v", name, i)
		}
		if tip := menu.Tooltip(s); strings.Contains(tip, "sharing") {
			t.Errorf("%s: %s", name, tip)
		}
	}
}

func find(items []menu.Item, id string) (menu.Item, bool) {
	for _, i := range flat(items) {
		if i.ID == id {
			return i, true
		}
	}
	return menu.Item{}, false
}

func TestAPeersSubmenuHasWhatCanBeDone(t *testing.T) {
	items := menu.Of(scenes()["peers"])
	for name, want := range map[string][]menu.Verb{
		"connected": {menu.Tether, menu.End, menu.SeeTop}, "tunnel": {menu.Tether, menu.End, menu.SeeTop}, "asked": {menu.Withdraw, menu.Tether},
		"far": {menu.End, menu.SeeTop}, "changing": {menu.Withdraw, menu.Tether, menu.End, menu.SeeTop}, "ending": {menu.Tether, menu.SeeTop},
		"declined": {menu.Ask, menu.Tether}, "stranger": {menu.Ask, menu.Tether}, "consumer": {menu.Ask, menu.Tether, menu.End, menu.SeeTop},
		"leaving": {menu.Ask, menu.Tether, menu.SeeTop}, "lost": {menu.End, menu.SeeTop}, "silent": nil, "busy": nil,
	} {
		i, ok := find(items, "peer/ID-"+name)
		var got []menu.Verb
		for _, deed := range i.Items {
			if deed.Action.Verb != menu.Nothing {
				got = append(got, deed.Action.Verb)
				if deed.Action.About != "ID-"+name || deed.Disabled {
					t.Errorf("%s: %+v", name, deed)
				}
			}
		}
		if !ok || i.Box || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, i := range flat(menu.Of(scenes()["tethered"])) {
		if strings.HasPrefix(i.ID, "ask/") || strings.HasPrefix(i.ID, "end/") {
			t.Errorf("while tethered: %+v", i)
		}
	}
}

func TestWhatBindsTheOwnerOpensAWindow(t *testing.T) {
	s := scenes()["confirm"]
	s.Snapshot.Requests = []api.Request{request("frank-1", "frank")}
	items := menu.Of(s)
	for id, want := range map[string]menu.Item{
		"confirm/ID-carol": {Label: "carol accepted · compare the code 069 210 · until 12:30…", Action: menu.Action{Verb: menu.Confirm, About: "ID-carol"}},
		"confirm/ID-dave":  {Label: "dave accepted · see its terms…", Action: menu.Action{Verb: menu.Confirm, About: "ID-dave"}},
		"answer/frank-1": {
			Label:  "frank asks · would get cpu 500m, memory 512Mi, pods 55 · code 069 210 · until 12:30…",
			Action: menu.Action{Verb: menu.Answer, About: "frank-1"},
		},
	} {
		if i, _ := find(items, id); i.Label != want.Label || i.Action != want.Action || i.Disabled {
			t.Errorf("%s: %+v", id, i)
		}
	}
	if i, _ := find(items, "confirm/ID-erin"); !i.Disabled || i.Label != "erin accepted · confirming…" {
		t.Errorf("it is being confirmed: %+v", i)
	}
	if tip := menu.Tooltip(s); !strings.Contains(tip, "3 peers accepted and wait") {
		t.Error(tip)
	}
}

// A panel whose menus are shallow leaves nothing out: what can be done about each of many peers is there, below its line.
func TestAShallowMenuOffersTheSame(t *testing.T) {
	verbs := func(shallow bool) map[menu.Action]int {
		s := scenes()["twenty"]
		s.Shallow = shallow
		for i := range s.Snapshot.Peers {
			s.Snapshot.Peers[i].Outgoing = api.StateConnected
		}
		all := map[menu.Action]int{}
		for _, i := range flat(menu.Of(s)) {
			all[i.Action]++
		}
		delete(all, menu.Action{}) // lines that say something
		return all
	}
	deep, shallow := verbs(false), verbs(true)
	if !maps.Equal(deep, shallow) {
		t.Errorf("deep %v\nshallow %v", deep, shallow)
	}
	if n := deep[menu.Action{Verb: menu.SeeTop, About: scenes()["twenty"].Snapshot.Peers[0].ID}]; n != 1 {
		t.Errorf("what pods use is offered %d times", n)
	}
}

// While a menu is open every line of it stays where it is, whatever comes, goes or changes.
func TestAnOpenMenuDoesNotMove(t *testing.T) {
	all := scenes()
	ids := func(items []menu.Item) (list []string) {
		for _, i := range flat(items) {
			list = append(list, i.ID)
		}
		return list
	}
	for opened, s := range all {
		shown := menu.Of(s)
		for later, next := range all {
			now := menu.Of(next)
			held := menu.Hold(shown, now)
			if !slices.Equal(ids(held), ids(shown)) {
				t.Fatalf("%s, then %s: %v, it was %v", opened, later, ids(held), ids(shown))
			}
			for _, i := range flat(held) {
				is, still := find(now, i.ID)
				switch {
				case i.Separator():
				case still && len(is.Items) > 0 == (len(i.Items) > 0):
					if i.Label != is.Label || i.Action != is.Action || i.Disabled != is.Disabled || i.On != is.On {
						t.Errorf("%s, then %s: %+v, it is %+v by now", opened, later, i, is)
					}
				case !i.Disabled:
					t.Errorf("%s, then %s: %+v is gone and can be clicked", opened, later, i)
				}
			}
			if again := menu.Hold(held, shown); !reflect.DeepEqual(again, shown) {
				t.Errorf("%s, then %s, and back: it is not as it was", opened, later)
			}
		}
	}
}

func TestIconAsksForAttentionWhileSomebodyWaits(t *testing.T) {
	all := scenes()
	for name, want := range map[string]bool{"alone": false, "peers": false, "request": true, "confirm": true, "gone": false} {
		if got := menu.Attention(all[name]); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	gone := all["request"]
	gone.Link = menu.Gone
	if menu.Attention(gone) {
		t.Error("nobody can be answered")
	}
}

func TestIconTellsTheWorst(t *testing.T) {
	all := scenes()
	provider := alice()
	guest := peer("bob")
	guest.Incoming = api.StateConnected
	provider.Snapshot.Peers = []api.Peer{guest}
	all["provider"] = provider
	for name, want := range map[string]icon.State{
		"alone": icon.Alone, "gone": icon.Gone, "forbidden": icon.Gone, "starting": icon.Alone, "no-engine": icon.Alone, "troubles": icon.Problem,
		"peers": icon.Peered, "tethered": icon.Tethered, "provider": icon.Offering, "crowd": icon.Peered,
	} {
		if got := menu.Icon(all[name]); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func FuzzMenuShowsAnyNameHarmlessly(f *testing.F) {
	for _, n := range nasty {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n string) {
		s := alice()
		p := peer(n)
		p.Outgoing, p.Why, p.Confirm = api.StateDeclined, n, &api.Confirmation{Code: n, Terms: []string{n}}
		s.Snapshot.Peers, s.Snapshot.Requests = []api.Peer{p}, []api.Request{request("r", n)}
		s.Note, s.Snapshot.Status.Name = n, n
		for _, i := range flat(menu.Of(s)) {
			if strings.ContainsFunc(i.Label, unicode.IsControl) || utf8.RuneCountInString(i.Label) > 300 || !utf8.ValidString(i.Label) {
				t.Errorf("%q", i.Label)
			}
		}
	})
}
