package door

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/local/apiproxy"
	"kith.dev/test/docs"
)

func TestThePageSaysTheseAmounts(t *testing.T) {
	l, none, one := apiproxy.DefaultLimits(), mostFor(nil), mostFor(corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")})
	docs.Say(t, "security.md",
		fmt.Sprintf("| kept in the API server | %d objects and %d for each pod granted, %d MiB and %d KiB for each;",
			none.Objects, one.Objects-none.Objects, none.Bytes>>20, (one.Bytes-none.Bytes)>>10),
		fmt.Sprintf("| requests to the API server | %v a second, %d at once after a rest; %d under way; %d streams |",
			l.Rate, l.Burst, l.Requests, l.Streams),
		fmt.Sprintf("| %d under way; others wait for their turn, %v s at most |", l.Lists, l.Turn.Seconds()),
		fmt.Sprintf("| bodies | %d MiB each, %d MiB under way,", l.Body>>20, l.Bodies>>20),
	)
}
