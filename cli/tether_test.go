package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/apitest"
)

const corpID = "CORPAAA-CORPAAA-CORPAAA-CORPAAA-CORPAAA-CORPAAA-CORPAAA-CORPAAA"

// laptop is alice beside corp, a company's cluster that she may be tethered to.
func laptop() *apitest.Backend {
	b := world()
	b.Known = []api.Peer{{Name: "corp", ID: corpID, ShortID: "corpaaa", Source: api.SourceLAN, Addresses: []string{"192.0.2.10:6450"}, Reachable: true,
		LastSeen: now, Outgoing: api.StateNone, Incoming: api.StateNone}}
	b.State.Counts, b.State.Problems, b.Pending, b.Here = api.Counts{Peers: 1}, nil, nil, nil
	b.Effects = []string{"The laptop becomes a node of corp's cluster.", "You may work there in team-a (edit).", "Your pods that run here run on."}
	b.TetherSteps = []api.Progress{{Message: "asking corp"}, {Message: "waiting until corp shows this laptop as a node"}}
	return b
}

func tethered() *apitest.Backend {
	b := laptop()
	b.State.Mode = api.Tethered
	b.State.Tether = &api.Tether{Peer: "corp", Step: "tethered", Since: now.Add(-2 * time.Hour), User: "kith:laptop:aliceaa", Namespaces: api.List[string]{"team-a (edit)", "sandbox-alice (admin)"}}
	b.Known[0].Incoming, b.Known[0].Tether = api.StateConnected, &api.PeerTether{Role: api.Laptop, Step: "tethered"}
	return b
}

// company is corp with two laptops, and a third that asks.
func company() *apitest.Backend {
	b := laptop()
	b.State.Name, b.State.Counts = "corp", api.Counts{Peers: 3, Connected: 2, Requests: 1, Laptops: 2}
	of := func(name string, t *api.PeerTether) api.Peer {
		return api.Peer{Name: name, ID: strings.ToUpper(name), ShortID: name, Source: api.SourceLAN, Reachable: t.Step != "lost", LastSeen: now, Outgoing: api.StateConnected, Incoming: api.StateNone, Node: "kith-" + name, Tether: t}
	}
	b.Known = []api.Peer{of("alice", &api.PeerTether{Role: api.Company, Step: "tethered"}), of("bob", &api.PeerTether{Role: api.Company, Step: "lost", Why: "bob cannot be reached since 11:40"})}
	b.Pending = []api.Request{{ID: "carol-7f3a", Peer: "carol", PeerID: carolID, Direction: api.Incoming, Code: "402817", Tether: true, Means: "this cluster runs it; its users work in team-a (edit)", State: api.StateRequested, Expires: now.Add(9 * time.Minute)}}
	return b
}

func TestTetherGolden(t *testing.T) {
	lost := func(until time.Time) func() *apitest.Backend {
		return func() *apitest.Backend {
			b := tethered()
			b.State.Tether.DownSince, b.State.Tether.Until = now.Add(-4*time.Minute), until
			b.State.Tether.Why = "corp does not answer: no route to host"
			return b
		}
	}
	for _, scene := range []struct {
		title    string
		world    func() *apitest.Backend
		commands []string
	}{
		{"a laptop", laptop, []string{"tether corp --check", "tether corp --check -o json", "tether corp", "tether corp --yes", "tether corp --yes --local-workloads drain", "tether corp --code 069210", "tether corp --yes -o json", "tether nobody --yes", "untether"}},
		{"with things in the way", func() *apitest.Backend {
			b := laptop()
			b.Blockers = []api.Problem{
				{Severity: api.SeverityError, What: "bob uses this laptop", Why: "a laptop that is tethered gives all it has to one cluster", Do: "kith unpeer bob"},
				{Severity: api.SeverityError, What: "this laptop uses carol", Do: "kith unpeer carol\nkith unoffload shop"},
			}
			return b
		}, []string{"tether corp --check", "tether corp --check -o json", "tether corp --yes"}},
		{"while it is being tethered", func() *apitest.Backend {
			b := laptop()
			b.State.Mode = api.Tethering
			b.State.Tether = &api.Tether{Peer: "corp", Step: "asking", Why: "the owner of corp is asked", Since: now.Add(-30 * time.Second), Code: "402817"}
			b.Blockers = []api.Problem{{What: "this laptop is being tethered to corp"}}
			return b
		}, []string{"status", "tether corp", "untether"}},
		{"when it does not come about", func() *apitest.Backend {
			b := laptop()
			b.TetherAnswer = &api.Error{Code: api.CodeDeclined, Message: "the owner of corp declined", Reason: "not on Fridays", Do: "talk to its owner"}
			return b
		}, []string{"tether corp --yes"}},
		{"tethered", tethered, []string{"status", "status -o json", "peers", "peers corp -o json", "untether", "untether --yes", "untether --yes --force --timeout 30s", "untether --timeout -1s"}},
		{"its company lost", lost(time.Time{}), []string{"status"}},
		{"its company lost, and control comes back", lost(now.Add(26 * time.Minute)), []string{"status"}},
		{"being taken back", func() *apitest.Backend {
			b := tethered()
			b.State.Mode, b.State.Tether.Step, b.State.Tether.Why = api.Untethering, "draining", "corp takes away 3 pods"
			return b
		}, []string{"status"}},
		{"the company", company, []string{"status", "peers", "requests", "requests -o json", "accept carol", "accept carol --yes", "decline carol"}},
	} {
		var got strings.Builder
		for _, line := range scene.commands {
			out, errs, code := serve(t, scene.world()).run(strings.Fields(line)...)
			fmt.Fprintf(&got, "$ kith %s\n%s", line, out)
			if errs != "" {
				fmt.Fprintf(&got, "[standard error]\n%s", errs)
			}
			fmt.Fprintf(&got, "[exit %d]\n\n", code)
		}
		t.Run(scene.title, func(t *testing.T) {
			golden(t, "tether-"+strings.NewReplacer(" ", "-", ",", "").Replace(scene.title), got.String())
		})
	}
}

func TestTetherAsksOnATerminalAndNeedsAYesElsewhere(t *testing.T) {
	for _, tc := range []struct {
		answer   string
		terminal bool
		args     []string
		asks     bool
		code     int
		done     bool
	}{
		{"y\n", true, []string{"tether", "corp"}, true, 0, true},
		{"n\n", true, []string{"tether", "corp"}, true, 1, false},
		{"", true, []string{"tether", "corp"}, true, 1, false},
		{"", true, []string{"tether", "corp", "--yes"}, false, 0, true},
		{"", false, []string{"tether", "corp"}, false, 2, false},
		{"", false, []string{"tether", "corp", "-y"}, false, 0, true},
		{"y\n", true, []string{"tether", "corp", "--check"}, false, 0, false},
		{"y\n", true, []string{"tether", "corp", "--local-workloads", "end"}, false, 2, false},
		{"y\n", true, []string{"tether", "corp", "--code", "12"}, false, 2, false},
	} {
		b := laptop()
		k := serve(t, b)
		k.terminal, k.in = tc.terminal, strings.NewReader(tc.answer)
		_, errs, code := k.run(tc.args...)
		asks, done := strings.Contains(errs, "Tether this laptop to corp? [y/N]"), strings.Contains(strings.Join(b.Called(), ","), ",Tether corp")
		if asks != tc.asks || code != tc.code || done != tc.done {
			t.Errorf("%v %q: asks %v, exit %d, done %v: %s", tc.args, tc.answer, asks, code, done, errs)
		}
		if asks && !strings.Contains(errs, "- You may work there in team-a (edit).\n") {
			t.Errorf("asked without what it means: %s", errs)
		}
	}
}

func TestUntetherAsksOnATerminalAndNeedsAYesElsewhere(t *testing.T) {
	for _, tc := range []struct {
		answer   string
		terminal bool
		mode     api.Mode
		args     []string
		asks     bool
		code     int
		done     bool
	}{
		{"y\n", true, api.Tethered, []string{"untether"}, true, 0, true},
		{"\n", true, api.Tethered, []string{"untether", "--force"}, true, 1, false},
		{"", true, api.Tethered, []string{"untether", "-y"}, false, 0, true},
		{"", false, api.Tethered, []string{"untether", "--force"}, false, 2, false},
		{"", false, api.Tethered, []string{"untether", "--force", "--yes"}, false, 0, true},
		{"", false, api.Tethering, []string{"untether"}, false, 0, true}, // nothing is lost
	} {
		b := tethered()
		b.State.Mode, b.State.Counts.Guests = tc.mode, 2
		k := serve(t, b)
		k.terminal, k.in = tc.terminal, strings.NewReader(tc.answer)
		_, errs, code := k.run(tc.args...)
		asks, done := strings.Contains(errs, "corp runs 2 pods here, which it starts elsewhere. Take this laptop back from corp? [y/N]"), slices.ContainsFunc(b.Called(), func(call string) bool { return strings.HasPrefix(call, "Untether") })
		if asks != tc.asks || code != tc.code || done != tc.done {
			t.Errorf("%v %q: asks %v, exit %d, done %v: %s %v", tc.args, tc.answer, asks, code, done, errs, b.Called())
		}
	}
}

func TestTheCodeOfATetherIsComparedAsThatOfAPeering(t *testing.T) {
	for answer, want := range map[string]struct {
		code  int
		calls string
	}{
		"y\ny\n": {0, "Confirm corp 402817 terms=false reject=false"},
		"y\nn\n": {6, "Confirm corp  terms=false reject=true"},
	} {
		b := laptop()
		b.TetherSteps = []api.Progress{
			{Message: "waiting for the owner of corp to accept", Code: "402817", Peer: "corp"},
			{Message: "corp accepted", Code: "402817", Confirm: &api.Confirmation{Code: "402817"}, Peer: "corp"},
		}
		k := serve(t, b)
		k.terminal, k.in = true, oneByOne(strings.SplitAfter(answer, "\n"))
		_, errs, code := k.run("tether", "192.0.2.10:6450")
		if calls := strings.Join(b.Called(), ","); code != want.code || !strings.Contains(calls, want.calls) {
			t.Errorf("%q: exit %d, %s\n%s", answer, code, calls, errs)
		}
		if !strings.Contains(errs, "code \x1b[1m402 817\x1b[0m: the other owner must see the same") || !strings.Contains(errs, "Does the screen of corp show the code \x1b[1m402 817\x1b[0m too? [y/n, Enter: later]") {
			t.Error(errs)
		}
	}
	b := laptop()
	b.TetherSteps = []api.Progress{{Message: "corp accepted", Code: "402817", Confirm: &api.Confirmation{Code: "402817"}, Peer: "corp"}}
	if _, errs, code := serve(t, b).run("tether", "corp", "--yes"); code != 8 || !strings.Contains(errs, "kith confirm corp --code CODE") {
		t.Errorf("a script: exit %d, %s", code, errs)
	}
}

func TestTheTetherOfAnAcceptedLaptopIsShownBeforeTheYes(t *testing.T) {
	b := company()
	k := serve(t, b)
	k.terminal, k.in = true, strings.NewReader("y\n")
	_, errs, code := k.run("accept", "carol")
	if code != 0 || !strings.Contains(errs, "carol is a laptop that asks to be run by this cluster. With a yes this cluster runs it; its users work in team-a (edit).\n") || strings.Contains(errs, "would get") {
		t.Errorf("exit %d, %s", code, errs)
	}
}

func TestTetherIsCompleted(t *testing.T) {
	for line, want := range map[string]string{
		"tether c": "corp\tout none, in none", "untether ": "", "tether corp --local-workloads ": "keep\ndrain",
	} {
		args := append([]string{"__complete"}, strings.Fields(line)...)
		if strings.HasSuffix(line, " ") {
			args = append(args, "")
		}
		out, _, _ := serve(t, laptop()).run(args...)
		if words, _, _ := strings.Cut(out, ":"); strings.TrimSuffix(words, "\n") != want {
			t.Errorf("%q: %q, want %q", line, out, want)
		}
	}
	if out, _, _ := serve(t, company()).run("__complete", "accept", ""); !strings.HasPrefix(out, "carol-7f3a\tcarol asks this cluster to run it\n") {
		t.Error(out)
	}
	if out, _, _ := serve(t, company()).run("__complete", "peers", "a"); !strings.HasPrefix(out, "alice\tout connected, in none, run from here\n") {
		t.Error(out)
	}
}

// oneByOne is a terminal: whoever reads ahead gets no more than one line.
func oneByOne(lines []string) *typed { return &typed{lines} }

type typed struct{ lines []string }

func (t *typed) Read(p []byte) (int, error) {
	if len(t.lines) == 0 {
		select {}
	}
	n := copy(p, t.lines[0])
	t.lines = t.lines[1:]
	return n, nil
}
