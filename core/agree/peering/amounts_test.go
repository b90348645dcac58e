package peering

import (
	"fmt"
	"testing"

	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmounts(t *testing.T) {
	l := defaultLimits
	minutes := int(l.Questions.Within.Minutes())
	words := map[int]string{10: "ten"}[minutes]
	docs.Say(t, "security.md",
		fmt.Sprintf("%d in %s minutes for all strangers together, %d for one address", l.Questions.All, words, l.Questions.Each),
		fmt.Sprintf("bob's nonce stays unknown; %d in %s minutes", l.Openings.All, words),
		fmt.Sprintf("| connections | %d from one address, %d of one key; %v new ones a second from one address, %d at once after a rest |",
			l.ConnsPerIP, l.ConnsPerCaller, l.ConnRate.PerSecond, l.ConnRate.Burst),
		fmt.Sprintf("| handshake, header | %v s each, %d KiB |", l.HeaderTimeout.Seconds(), maxHeader>>10),
		fmt.Sprintf("as they are decoded | %d KiB a second, %d KiB at once;", int(l.HeaderRate.PerSecond)>>10, l.HeaderRate.Burst>>10),
	)
	if l.Openings.Within != l.Questions.Within {
		t.Errorf("openings are counted for %s, questions for %s", l.Openings.Within, l.Questions.Within)
	}
}
