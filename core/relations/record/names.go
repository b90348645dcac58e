package record

import (
	"strings"

	"kith.dev/core/identity"
)

// maxName keeps "kith-<name>" and "<name>-<short id>" within a DNS label.
const maxName = 40

// Label makes a DNS label (RFC 1123) of a name that a peer gave itself, "laptop" when nothing is left of it.
func Label(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == maxName {
			break
		}
	}
	if label := strings.Trim(b.String(), "-"); label != "" {
		return label
	}
	return "laptop"
}

// NameFor gives the name under which the cluster id, which calls itself name, is known here: that name when
// nobody else has it, else with its short ID, and should somebody have called himself just that, the ID alone. taken tells
// whether another cluster has a name.
func NameFor(id identity.ID, name string, taken func(string) bool) string {
	label := Label(name)
	if !taken(label) {
		return label
	}
	if second := label + "-" + strings.ToLower(id.Short()); !taken(second) {
		return second
	}
	return "peer-" + id.Compact()[:32] // 160 bits: nobody else has that
}
