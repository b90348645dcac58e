package audit

import (
	"fmt"
	"testing"
	"time"

	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmounts(t *testing.T) {
	if often != 10 || tellAgain != 10*time.Minute || sameAgain != time.Minute {
		t.Error("the page says ten times, ten minutes and a minute in words")
	}
	docs.Say(t, "security.md",
		fmt.Sprintf("Of one peer %d lines are written at once, then one in %v s, each line once a minute", linesBurst, linesPer.Seconds()),
		"Who is refused ten times within a minute is told to you, once in ten minutes",
	)
}
