package cli_test

import (
	"slices"
	"strings"
	"testing"

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
		asks := strings.Contains(errs, "carol would get cpu 2 (asked 100000), memory 1Gi, pods 55, ephemeral-storage 20Gi; its owner's screen must show the code 402 817. Go on? [y/N]")
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
