package cli_test

import (
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
)

// What is asked of kithd by a command with --dry-run reads, or is a dry run itself; also on a terminal, where else there would be a question.
func TestADryRunWritesNothing(t *testing.T) {
	reads := []string{"Status", "Peers", "Peer", "Offloads", "Policies"}
	for _, terminal := range []bool{false, true} {
		for _, line := range []string{
			"unpeer bob", "unpeer bob --yes", "unpeer --all", "forget bob", "share 30%", "share off", "share --policy lab --to team=lab --cpu 1", "share --internet=false",
			"unoffload shop", "unoffload shop --force", "tether bob", "tether bob --local-workloads drain --yes", "tether bob --check", "undo",
		} {
			b := world()
			b.Effects = []string{"bob's cluster decides"}
			k := serve(t, b)
			k.terminal = terminal
			if line == "undo" {
				k.run("share", "30%")
			}
			before := len(b.Called())
			out, errs, code := k.run(append(strings.Fields(line), "--dry-run")...)
			if code != 0 || out == "" || strings.Contains(errs, "[y/N]") {
				t.Errorf("%s: exit %d\n%s%s", line, code, out, errs)
			}
			dry := false
			for _, call := range b.Called()[before:] {
				words := strings.Fields(call)
				is := words[len(words)-1] == "dry"
				if dry = dry || is; !is && !slices.Contains(reads, words[0]) {
					t.Errorf("%s: called %s", line, call)
				}
			}
			if !dry {
				t.Errorf("%s: what would be done was not asked of kithd: %v", line, b.Called()[before:])
			}
		}
	}
}

func TestUndoTakesTheLastChangeBackAndBringsItBack(t *testing.T) {
	b := world()
	k := serve(t, b)
	share := func() (share string) {
		b.Set(func() { share = b.Shared[0].Amounts.Share() })
		return share
	}
	k.run("share", "30%")
	for _, want := range []string{"50%", "30%", "50%"} {
		out, errs, code := k.run("undo")
		if code != 0 || share() != want || !strings.Contains(out, "→ "+want) {
			t.Errorf("%d %s, want %s\n%s%s", code, share(), want, out, errs)
		}
	}
	b.Set(func() { b.Shared[0].Amounts, b.Shared[0].Generation = api.ShareOf("10%"), 9 }) // by kubectl
	if out, errs, code := k.run("undo"); code != 1 || share() != "10%" || !strings.Contains(errs, "has changed since") {
		t.Errorf("%d %s\n%s%s", code, share(), out, errs)
	}
}
