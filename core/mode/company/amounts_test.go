package company

import (
	"fmt"
	"testing"

	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmounts(t *testing.T) {
	l := limits()
	docs.Say(t, "security.md",
		fmt.Sprintf("| requests | %v a second, %d at once after a rest; %d under way |", l.Rate, l.Burst, l.Requests),
		fmt.Sprintf("| watches, followed logs, shells, forwarded ports | %d |", l.Streams),
		fmt.Sprintf("| lists of whole collections, and deletions of them | %d under way; others wait for their turn, %v s at most |", l.Lists, l.Turn.Seconds()),
		fmt.Sprintf("| bodies | %d MiB each, %d MiB under way,", l.Body>>20, l.Bodies>>20),
		fmt.Sprintf("| time for an answer, streams aside | %v s |", l.Timeout.Seconds()),
	)
}
