package screen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kith.dev/core/api"
)

// Age writes a duration with one unit, as kubectl does.
func Age(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// UsedOf writes "cpu 500m of 2, memory 0 of 4Gi".
func UsedOf(used, of api.Resources) string {
	var parts []string
	for _, name := range of.Names() {
		parts = append(parts, fmt.Sprintf("%s %s of %s", api.Called(name), cmp.Or(used[name], "0"), of[name]))
	}
	return strings.Join(parts, ", ")
}

// Used writes "cpu 500m/2, memory 1.5Gi/4Gi" for a table: rounded, and without scratch space and devices.
func Used(used, of api.Resources) string {
	return usedOf(used, of, func(name string) bool { return name != api.EphemeralStorage && !api.Extended(name) })
}

// Devices is Used for devices alone: "nvidia.com/gpu 1/2".
func Devices(used, of api.Resources) string { return usedOf(used, of, api.Extended) }

func usedOf(used, of api.Resources, shown func(name string) bool) string {
	var parts []string
	for _, name := range of.Names() {
		if shown(name) {
			parts = append(parts, fmt.Sprintf("%s %s/%s", api.Called(name), cmp.Or(api.Rounded(name, used[name]), "0"), api.Rounded(name, of[name])))
		}
	}
	return strings.Join(parts, ", ")
}

func Yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Bytes writes a number of bytes: 1.5MiB.
func Bytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, unit := float64(n)/1024, 0
	for ; v >= 1024 && unit < len(units)-1; unit++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f%ciB", v, units[unit])
}

// Count writes "1 pod", "2 pods".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ShortImage is the name of an image as people write it, which means the same: without the registry and the folder that are put before
// short names.
func ShortImage(name string) string {
	rest, hub := strings.CutPrefix(name, "docker.io/")
	if !hub {
		return name
	}
	return strings.TrimPrefix(rest, "library/")
}

// NonEmpty are the words that say something.
func NonEmpty(words ...string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return word == "" })
}
