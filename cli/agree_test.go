package cli_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"kith.dev/core/api"
)

func asksToConfirm(t *testing.T, asked api.Confirmation) (kith, func() string) {
	b := world()
	b.AskConfirm = &asked
	return serve(t, b), func() string { return strings.Join(b.Called(), "; ") }
}

func TestATerminalComparesTheCodeBeforeAnythingIsSigned(t *testing.T) {
	for _, c := range []struct {
		answer, calls string
		code          int
	}{
		{"y\n", "Confirm carol 069210 terms=false reject=false", api.ExitOK},
		{"n\n", "Confirm carol  terms=false reject=true", api.ExitDeclined},
		{"\n", "", api.ExitConfirm},      // later: only the word no declines
		{"what?\n", "", api.ExitConfirm}, // neither
		{"", "", api.ExitConfirm},        // left without an answer: the request stands
	} {
		k, calls := asksToConfirm(t, api.Confirmation{Code: "069210"})
		k.terminal, k.noColour, k.in = true, true, strings.NewReader(c.answer)
		_, errs, code := k.run("peer", "carol")
		if code != c.code || !strings.Contains(errs, "Does the screen of carol show the code 069 210 too? [y/n, Enter: later]") {
			t.Errorf("%q: exit code %d, want %d: %s", c.answer, code, c.code, errs)
		}
		if got := calls(); strings.Contains(got, "Confirm") != (c.calls != "") || !strings.Contains(got, c.calls) {
			t.Errorf("%q: called %s", c.answer, got)
		}
	}
}

// Who was asked by an address is confirmed by name: an address is only a way to ask.
func TestAPeerAskedByItsAddressIsConfirmedByName(t *testing.T) {
	b := world()
	i := slices.IndexFunc(b.Known, func(p api.Peer) bool { return p.Name == "carol" })
	b.Known[i].Addresses = []string{"192.0.2.13:6450"}
	b.AskConfirm = &api.Confirmation{Code: "069210"}
	k := serve(t, b)
	k.terminal, k.noColour, k.in = true, true, strings.NewReader("y\n")
	_, errs, code := k.run("peer", "192.0.2.13:6450")
	if code != api.ExitOK || !strings.Contains(errs, "Does the screen of carol show") || !strings.Contains(strings.Join(b.Called(), "; "), "Confirm carol 069210") {
		t.Errorf("exit code %d, called %q: %s", code, b.Called(), errs)
	}
}

func TestTermsAreAgreedToOneByOneAfterTheCode(t *testing.T) {
	asked := api.Confirmation{Code: "069210", Terms: []string{"cpu costs 0.02 EUR an hour\x1b[2J"}}
	for answers, want := range map[string]string{
		"y\ny\n": "Confirm carol 069210 terms=true reject=false",
		"y\nn\n": "Confirm carol  terms=false reject=true",
	} {
		k, calls := asksToConfirm(t, asked)
		k.terminal, k.noColour, k.in = true, true, strings.NewReader(answers)
		_, errs, _ := k.run("peer", "carol")
		if !strings.Contains(calls(), want) || !strings.Contains(errs, "  cpu costs 0.02 EUR an hour\uFFFD[2J\n") {
			t.Errorf("%q: called %s\n%s", answers, calls(), errs)
		}
	}
}

func TestAScriptIsToldWhatToDoAndNothingIsConfirmed(t *testing.T) {
	k, calls := asksToConfirm(t, api.Confirmation{Code: "069210", Terms: []string{"cpu costs 0.02 EUR an hour"}})
	k.in = io.MultiReader(strings.NewReader("y\n"), strings.NewReader("y\n"))
	_, errs, code := k.run("peer", "carol")
	for _, want := range []string{"nothing is signed before you confirm", "069 210", "cpu costs 0.02 EUR", "kith confirm carol --code CODE --terms", "--reject"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q lacks %q", errs, want)
		}
	}
	if code != api.ExitConfirm || strings.Contains(calls(), "Confirm ") {
		t.Errorf("exit code %d, called %s", code, calls())
	}
}

func TestACodeOrAWholeIDIsGivenBeforehand(t *testing.T) {
	k, calls := asksToConfirm(t, api.Confirmation{Code: "069210"})
	if _, errs, code := k.run("peer", "carol", "--code", "069 210"); code != 0 || !strings.Contains(calls(), "Ask carol  069210") {
		t.Errorf("%d %s, called %s", code, errs, calls())
	}
	b := world()
	id := strings.Repeat("ABCDEFG-", 7) + "ABCDEFG"
	b.Known[0].ID = id
	typed := strings.ToLower(strings.ReplaceAll(id, "-", ""))
	for _, written := range []string{id, typed} {
		k, b := serve(t, b), b
		k.run("peer", written)
		if got := strings.Join(b.Called(), "; "); !strings.Contains(got, " "+id) {
			t.Errorf("%s: called %s, want the whole ID in the question", written, got)
		}
	}
	// What only begins an ID trusts nobody.
	k, calls = asksToConfirm(t, api.Confirmation{Code: "069210"})
	k.run("peer", "mfzwi3d")
	if strings.Contains(calls(), "mfzwi3d  ") {
		t.Errorf("called %s", calls())
	}
}
