package cli

import (
	"fmt"
	"strings"
	"time"

	"kith.dev/core/api"
)

// ago says how long t is past: "2m ago"; "" when it is not known.
func (p *program) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(p.Now().Sub(t)) + " ago"
}

// until says how long t is ahead: "in 9m".
func (p *program) until(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if left := t.Sub(p.Now()); left > 0 {
		return "in " + age(left)
	}
	return p.ago(t)
}

// age writes a duration with one unit, as kubectl does.
func age(d time.Duration) string {
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

// usedOf writes "cpu 500m of 2, memory 0 of 4Gi".
func usedOf(used, of api.Resources) string {
	var parts []string
	for _, name := range of.Names() {
		u := used[name]
		if u == "" {
			u = "0"
		}
		parts = append(parts, fmt.Sprintf("%s %s of %s", name, u, of[name]))
	}
	return strings.Join(parts, ", ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// bytesOf writes a number of bytes: 1.5MiB.
func bytesOf(n uint64) string {
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

// count writes "1 pod", "2 pods".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// sameID compares cluster IDs as people copy them: any case, with dashes or not; prefix is enough when asked of long ones.
func sameID(id, typed string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	return len(plain(typed)) >= 4 && strings.HasPrefix(plain(id), plain(typed))
}
