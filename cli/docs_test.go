package cli_test

import (
	"strings"
	"testing"
)

func TestDocsAreShownAndSearched(t *testing.T) {
	k := serve(t, world())
	for _, c := range []struct {
		args, has string
		code      int
	}{
		{"docs", "pods             Pods at a peer\n", 0},
		{"docs pods", "# Pods at a peer\n", 0},
		{"docs PODS.md", "# Pods at a peer\n", 0},
		{"docs link-local", "security, ", 0},
		{"docs the", "lines more\n", 0},
		{"docs ../cli.go", "", 5},
		{"docs pods modes", "", 2},
	} {
		out, errs, code := k.run(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.has) || (code == 0) != (errs == "") {
			t.Errorf("%s: exit %d, %.200s %s", c.args, code, out, errs)
		}
	}
}

// Comments name the tests of a sentence: not for the reader of a terminal.
func TestDocsAreShownWithoutComments(t *testing.T) {
	out, _, code := serve(t, world()).run("docs", "security")
	if code != 0 || strings.Contains(out, "<!--") || !strings.Contains(out, "| bob's LAN, other laptops, the router | no |\n") {
		t.Errorf("exit %d, comments: %t", code, strings.Contains(out, "<!--"))
	}
}

func TestDocsAreShownInThePager(t *testing.T) {
	k := serve(t, world())
	for _, c := range []struct {
		pager, begins string
		terminal      bool
	}{
		{"sed s/^/>/", ">#", true},
		{"sed s/^/>/", "# ", false},
		{"/none -R", "# ", true},
	} {
		k.pager, k.terminal = c.pager, c.terminal
		if out, errs, code := k.run("docs", "pods"); code != 0 || errs != "" || !strings.HasPrefix(out, c.begins) {
			t.Errorf("%+v: exit %d, %.40q %s", c, code, out, errs)
		}
	}
}
