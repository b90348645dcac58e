package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"kith.dev/core/api"
)

// causeReasons are all that core/api has.
func causeReasons(t *testing.T) (all []api.CauseReason) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../core/api/why.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, is := spec.Type.(*ast.Ident); is && kind.Name == "CauseReason" {
			word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, api.CauseReason(word))
		}
		return true
	})
	if len(all) < 40 {
		t.Fatalf("only %d reasons were found", len(all))
	}
	return all
}

// What waits for somebody says what he can do; what passes by itself needs not.
func TestEachCauseHasItsSentences(t *testing.T) {
	for _, reason := range causeReasons(t) {
		for _, guest := range []string{"", "alice"} {
			w := api.Why{Namespace: "shop", Name: "web", Guest: guest, Causes: []api.Cause{{
				Reason: reason, Laptop: "bob", Peer: true, Who: api.WhoYou, Container: "main", Detail: "Word", Names: []string{"a", "b"}, Restarts: 2,
				Short: []api.Short{{Resource: "cpu", Asked: "500m", Free: "200m", Of: "1"}, {Resource: "memory", Asked: "1Gi", Free: "512Mi", Of: "1536Mi"}},
			}}}
			Say(&w)
			c := w.Causes[0]
			passes := map[api.CauseReason]bool{
				api.CauseNotScheduled: true, api.CauseAsking: true, api.CauseRemaking: true, api.CauseRuns: true, api.CauseStarts: true, api.CauseDone: true,
				api.CauseImagePulling: true, api.CauseOther: true, api.CauseRefused: true,
			}
			if c.What == "" || c.Do == "" && !passes[reason] || strings.Contains(c.What+c.Why+c.Do, "%!") {
				t.Errorf("%s: %q, %q, %q", reason, c.What, c.Why, c.Do)
			}
			if strings.Contains(c.Do, "kubectl -n shop logs") && guest != "" {
				t.Errorf("%s: the log of a guest is not for whom it visits: %q", reason, c.Do)
			}
		}
	}
}

// docs/troubleshooting.md has each reason in its table, and no other.
func TestThePageShowsTheReasons(t *testing.T) {
	page, err := os.ReadFile("../../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| reasons | the pod |")
	table, _, _ := strings.Cut(rest, "\n\n")
	left := map[string]bool{}
	for line := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for i, word := range strings.Split(cell, "`") {
			if i%2 == 1 {
				left[word] = true
			}
		}
	}
	for _, reason := range causeReasons(t) {
		if !left[string(reason)] {
			t.Errorf("the page has no %s", reason)
		}
		delete(left, string(reason))
	}
	if len(left) > 0 {
		t.Errorf("the page has reasons that there are not: %v", left)
	}
}

func TestHowMuchMoreToAskForIsSaid(t *testing.T) {
	w := api.Why{Causes: []api.Cause{{Reason: api.CauseNoRoom, Laptop: "bob", Peer: true, Short: []api.Short{
		{Resource: "cpu", Asked: "500m", Free: "200m", Of: "1"}, {Resource: "nvidia.com/gpu", Asked: "1", Free: "0", Of: "0"},
	}}, {Reason: api.CauseNoRoom, Laptop: "alice", Short: []api.Short{{Resource: "memory", Asked: "3Gi", Free: "8150224Ki", Of: "16Gi"}}}}}
	Say(&w)
	if c := w.Causes[0]; c.Why != "cpu: it asks for 0.5, and 0.2 of 1 is free\nnvidia.com/gpu: it asks for 1, and 0 of 0 is free" ||
		!strings.HasPrefix(c.Do, "`kith peer bob --cpu 1300m --resource nvidia.com/gpu=1` ") {
		t.Errorf("%q %q", c.Why, c.Do)
	}
	if c := w.Causes[1]; c.Why != "memory: it asks for 3Gi, and 7.8Gi of 16Gi is free" || strings.Contains(c.Do, "kith peer") {
		t.Errorf("%q %q", c.Why, c.Do)
	}
}
