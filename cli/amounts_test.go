package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"kith.dev/core/api"
)

// A terminal shows what a yes gives before it is said, and no more than that is said yes to.
func TestATerminalShowsWhatWouldBeGrantedBeforeItIs(t *testing.T) {
	for _, c := range []struct {
		answer, call string
		args         []string
		asks         bool
		code         int
	}{
		{"y\n", "Accept 7f3a cpu 2, memory 1Gi, pods 55, ephemeral-storage 20Gi", []string{"accept", "carol"}, true, api.ExitOK},
		{"n\n", "", []string{"accept", "carol"}, true, api.ExitFailure},
		{"", "", []string{"accept", "carol"}, true, api.ExitFailure},
		{"", "Accept carol ", []string{"accept", "carol", "--yes"}, false, api.ExitOK},
	} {
		b := world()
		k := serve(t, b)
		k.terminal, k.noColour, k.in = true, true, strings.NewReader(c.answer)
		_, errs, code := k.run(c.args...)
		asks := strings.Contains(errs, "carol would get cpu 2 (asked 100000), memory 1Gi, pods 55, ephemeral-storage 20Gi.\nIts owner's screen must show the code 402 817 too. Accept? [y/N]")
		i := slices.IndexFunc(b.Called(), func(call string) bool { return strings.HasPrefix(call, "Accept") })
		if asks != c.asks || code != c.code || (i < 0) != (c.call == "") || i >= 0 && b.Called()[i] != c.call {
			t.Errorf("%v %q: exit code %d, called %q: %s", c.args, c.answer, code, b.Called(), errs)
		}
	}
}

func TestWhatIsAskedOfAPeerIsWithdrawnAlone(t *testing.T) {
	b := world()
	b.Known[0].Asked = api.Resources{"cpu": "3", "memory": "4Gi"}
	out, errs, code := serve(t, b).run("peer", "bob", "--withdraw")
	calls := strings.Join(b.Called(), "; ")
	if code != 0 || out != "the request to bob is taken back\nbob is connected: node kith-bob with cpu 2, memory 4Gi\n" || calls != "Withdraw bob" {
		t.Errorf("exit code %d, called %s: %s%s", code, calls, out, errs)
	}
}

// An answer with less than was asked for says so, here and in the list; a question that would change nothing says that.
func TestAskingSaysWhatIsLessAndWhatChangesNothing(t *testing.T) {
	b := world()
	b.Known[0].Less = "asked cpu 100000, granted 2"
	out, errs, code := serve(t, b).run("peer", "bob", "--cpu", "100000")
	if code != 0 || out != "bob is connected: node kith-bob with cpu 2, memory 4Gi\nasked cpu 100000, granted 2\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if out, _, _ := serve(t, b).run("peers", "bob"); !strings.Contains(out, "asked cpu 100000, granted 2") {
		t.Error(out)
	}
	b = world()
	b.Known[0].Unchanged = true
	if out, _, _ := serve(t, b).run("peer", "bob"); out != "nothing changes: bob grants that already\nbob is connected: node kith-bob with cpu 2, memory 4Gi\n" {
		t.Error(out)
	}
}

// Not waiting for the answer to a change, one is told what was asked.
func TestAChangeThatWaitsSaysWhatItChanges(t *testing.T) {
	b := world()
	b.Known[0].Asked = api.Resources{"cpu": "3", "memory": "4Gi"}
	out, errs, code := serve(t, b).run("peer", "bob", "--cpu", "3", "--wait=false")
	if code != 0 || out != "asked bob for cpu 2 → 3, memory 4Gi; it waits for the answer of its owner\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// What most people have fits a terminal of 80 columns, in an outage too; -o wide has the rest.
func TestTablesFitATerminal(t *testing.T) {
	b := world()
	b.Known = []api.Peer{{
		Name: "bob", ID: bobID, ShortID: "mfzwi3d", Source: api.SourceLAN, Outgoing: api.StateUnreachable, Incoming: api.StateUnreachable, DownSince: now.Add(-7 * time.Minute),
		Code: "069210", Offered: api.Resources{"cpu": "2", "memory": "12001Mi", "pods": "55", "ephemeral-storage": "126429Mi"}, LastSeen: now.Add(-7 * time.Minute),
		Addresses: []string{"192.168.1.20:6450"}, Why: "no answer from 192.168.1.20:6450 for 7 min, and its tunnel is down; its pods are kept there and it comes back by itself",
	}}
	b.Pending = []api.Request{{ID: "alice-0z60", Peer: "alice", Direction: api.Incoming, Code: "069210", Expires: now.Add(9 * time.Minute),
		Granted: api.Resources{"cpu": "2500m", "memory": "12001Mi", "pods": "55", "ephemeral-storage": "126429Mi"}}}
	b.Signed = []api.Contract{{Name: "from-bob-x7k2", State: api.StateUnreachable, Peer: "bob", Used: api.Resources{"cpu": "1500m", "memory": "3000Mi", "pods": "12"},
		Resources: api.Resources{"cpu": "2", "memory": "12001Mi", "pods": "55", "ephemeral-storage": "126429Mi"}, NotAfter: now.Add(720 * time.Hour), Why: strings.Repeat("why ", 30)}}
	b.Here = []api.Guest{{Namespace: "shop-2sgg5zt", Name: "web-777557b477-ct5wz", Consumer: "alice", Phase: "Running", Created: now.Add(-time.Hour), Why: strings.Repeat("why ", 30)}}
	b.Abroad[0].Twins[0].Why = strings.Repeat("why ", 30)
	b.Shared = b.Shared[:1]
	k := serve(t, b)
	for _, command := range []string{"peers", "requests", "contract", "guests", "volumes", "offload", "share"} {
		out, errs, code := k.run(command)
		if code != 0 {
			t.Errorf("%s: %s", command, errs)
		}
		for _, line := range strings.Split(out, "\n")[:2] { // titles, and the one row; sentences stand below
			if n := utf8.RuneCountInString(line); n > 80 || n < 20 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if out, _, _ := k.run("peers"); !strings.Contains(out, "down 7m") || !strings.Contains(out, "bob: no answer from 192.168.1.20:6450 for 7 min, and its tunnel is down; its pods are kept there and it comes back by itself\n") {
		t.Error(out)
	}
}

// A percentage below nothing is an amount that cannot be, not a flag that is unknown.
func TestAShareBelowNothingIsAWrongAmount(t *testing.T) {
	for _, word := range []string{"-5%", "-5", "-0.5%"} {
		b := world()
		_, errs, code := serve(t, b).run("share", word)
		if code == 0 || !strings.Contains(errs, word) || !strings.Contains(errs, "a whole percentage from 0% to 100%, off or on") || len(b.Called()) > 0 {
			t.Errorf("%s: exit code %d, called %q: %s", word, code, b.Called(), errs)
		}
	}
	if _, errs, code := serve(t, world()).run("share", "-x"); code == 0 || !strings.Contains(errs, "unknown shorthand flag: 'x'") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// Storage is named by its class, more than once, and asked for under the name that it has in a ResourceQuota.
func TestStorageIsNamedByItsClass(t *testing.T) {
	for _, c := range []struct {
		args []string
		call string // "": refused, with says
		says string
	}{
		{[]string{"peer", "bob", "--storage", "5Gi,fast=2Gi"}, "Ask bob storage 5Gi, storage (fast) 2Gi", ""},
		{[]string{"peer", "bob", "--storage", "5Gi", "--storage", "fast=2Gi"}, "Ask bob storage 5Gi, storage (fast) 2Gi", ""},
		{[]string{"peer", "bob", "--storage", "Fast=2Gi"}, "", "resource name"},
		{[]string{"peer", "bob", "--storage", "fast="}, "", "a Kubernetes quantity"},
		{[]string{"share", "--storage", "fast=50%"}, "", "of how much it would be a part is not known"},
		{[]string{"share", "--storage", "fast"}, "", "a Kubernetes quantity"},
	} {
		b := world()
		_, errs, code := serve(t, b).run(c.args...)
		calls := strings.Join(b.Called(), "; ")
		switch {
		case c.call == "" && (code == 0 || !strings.Contains(errs, c.says)):
			t.Errorf("%v: exit code %d: %s", c.args, code, errs)
		case c.call != "" && (code != 0 || !strings.HasPrefix(calls, c.call)):
			t.Errorf("%v: exit code %d, called %s: %s", c.args, code, calls, errs)
		}
	}
}
