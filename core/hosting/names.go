package hosting

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"kith.dev/core/api"
)

const maxName = validation.DNS1123LabelMaxLength

// twinNames gives the names a twin of home may have here, the one to try first in front. Names this
// cluster keeps for itself are never given away bare.
func twinNames(home string, consumer Consumer, sameName bool) ([]string, error) {
	if msgs := validation.IsDNS1123Label(home); len(msgs) > 0 {
		return nil, api.Invalid("home", home, "the name of a namespace: "+strings.Join(msgs, "; "))
	}
	if sameName {
		if reserved(home) {
			return nil, &api.Error{
				Code:    api.CodeConflict,
				Message: fmt.Sprintf("namespace %q cannot have the same name at the provider", home),
				Reason:  "default, kube-* and kith-* are the provider's own there",
				Do:      "use the mapping Default",
			}
		}
		return []string{home}, nil
	}
	suffixed := []string{
		suffix(home, consumer.Compact[:7]),
		suffix(home, consumer.Compact[:14]), // when somebody made a namespace of the first form
	}
	if reserved(home) {
		return suffixed, nil
	}
	return append([]string{home}, suffixed...), nil
}

func reserved(name string) bool {
	return name == "default" || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "kith-")
}

// suffix gives "<name>-<id>". A name too long for that is cut, and a hash of the whole stands for what was
// cut off: two long names that begin alike stay two.
func suffix(name, id string) string {
	if len(name)+1+len(id) <= maxName {
		return name + "-" + id
	}
	sum := sha256.Sum256([]byte(name))
	tail := "-" + hex.EncodeToString(sum[:4]) + "-" + id
	return strings.TrimRight(name[:maxName-len(tail)], "-") + tail
}

// labelValue makes a name fit a label.
func labelValue(name string) string {
	if len(name) > validation.LabelValueMaxLength {
		name = name[:validation.LabelValueMaxLength]
	}
	return strings.Trim(name, "-._")
}
