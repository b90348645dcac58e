package question_test

import (
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/local/kubeconfig"
	"kith.dev/tray/question"
)

func TestSharingIsAskedAboutInTwoWindows(t *testing.T) {
	now := api.Sharing{Share: "50%"}
	q := question.Share(now, true)
	if got := strings.Join(append(q.Or, q.Yes, q.No), "|"); got != "Nothing|25 %|50 %|75 %|100 %|Pause" || !strings.Contains(text(q), "Pods of others are fenced") ||
		!strings.Contains(text(q), "Now it is sharing 50 %.") {
		t.Error(text(q))
	}
	if strings.Contains(text(question.Share(now, false)), "fenced") {
		t.Error("a cluster that Kith does not run has no fence of its")
	}
	now.Paused = true
	if q := question.Share(now, true); q.No != "Resume" || !strings.Contains(text(q), "Now it is sharing paused.") {
		t.Error(text(q))
	}
	for answer, want := range map[question.Answer]string{
		question.Or(0): "0%", question.Or(1): "25%", question.Or(3): "75%", question.Yes: "100%", question.NotNow: "", question.No: "", question.Or(4): "",
	} {
		if got := question.Shared(answer); got != want {
			t.Errorf("answer %d is %q, want %q", answer, got, want)
		}
	}
	want := `Ask you each time somebody wants to use 25 % of this laptop?

Ask me: you see who asks and what it would get, and accept or decline.
Accept all: everybody on your network who asks gets it, whoever that is.
[Ask me] [Accept all]`
	if got := text(question.Each("25%")); got != want {
		t.Error(got)
	}
}

func TestKubectlIsAskedAboutWithTheFile(t *testing.T) {
	for _, c := range []struct {
		plan kubeconfig.Plan
		says string
		or   bool
	}{
		{kubeconfig.Plan{Path: "/home/anna/.kube/config", Context: "kith", New: true, Uses: true}, "is written into a new file, /home/anna/.kube/config.", false},
		{kubeconfig.Plan{Path: "/k", Context: "kith", Uses: true}, "It becomes the current context: `kubectl get nodes` shows this laptop.", false},
		{kubeconfig.Plan{Path: "/k", Context: "kith", Current: "work"}, "The context kith is added to /k. All else there stays as it is.", true},
		{kubeconfig.Plan{Path: "/k", Context: "kith", Current: "work"}, "The current context stays work: `kubectl --context kith get nodes` shows this laptop.", true},
		{kubeconfig.Plan{Path: "/k", Context: "kith", Current: "kith", Replaces: true}, "The context kith in /k is renewed.", false},
		{kubeconfig.Plan{Path: "/k", Link: "/dotfiles/k", Context: "kith", Current: "work"}, "That is a link: what is written is /dotfiles/k.", true},
		{kubeconfig.Plan{Path: "/k", Context: "kith", Current: "a\nb\u202e"}, "stays a\uFFFDb\uFFFD:", true},
	} {
		q := question.Kubectl(c.plan)
		if !strings.Contains(text(q), c.says) || (len(q.Or) == 1) != c.or || !strings.Contains(text(q), "keep the file to yourself") {
			t.Errorf("%+v:\n%s", c.plan, text(q))
		}
	}
}
