package provider

import (
	"fmt"
	"testing"
	"time"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmounts(t *testing.T) {
	if record.RenewalPause != 12 || sharing.MinValidity != time.Hour || sharing.MaxValidity != 10*365*24*time.Hour || record.Validity != 30*24*time.Hour || record.ClockSkew != 10*time.Minute {
		t.Error("the page says a twelfth, an hour, ten years, 30 days and ten minutes in words")
	}
	docs.Say(t, "security.md",
		fmt.Sprintf("| questions that wait for an answer | %d.", maxPending),
		fmt.Sprintf("| comparing the books | %d a second, %d at once |", compareRate, compareBurst),
		"once in a twelfth of the contract's time, five minutes at least",
		"is from one hour to ten years", "signs for 30 days at most", "Clocks may be ten minutes apart",
	)
}
