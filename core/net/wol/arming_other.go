//go:build !linux

package wol

// arming: the system does not say.
func arming(list []Device) error {
	for i := range list {
		list[i].Arming = Unknown
	}
	return nil
}

// Woke counts how often devices woke this machine: the system does not say.
func Woke([]Device) map[string]int64 { return nil }
