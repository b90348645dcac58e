package hosting

import (
	"fmt"
	"testing"

	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmountsOfViewsAndUse(t *testing.T) {
	docs.Say(t, "security.md",
		fmt.Sprintf("| %d, of which a newer takes the place of the oldest; opened %d times at once, then once in %v s; %d objects that wait to be told |",
			maxViews, viewsBurst, viewsEvery.Seconds(), maxPending),
		fmt.Sprintf("| picking its guests out of what kubelets say | once in %v s |", usageFor.Seconds()),
	)
}
