// Package thermal tells whether this machine is cool enough for more work, as the kernel's thermal zones have it. Whoever offers something under a
// condition asks it, at that moment; it watches nothing, and must never be asked in a loop: to read some sensors takes milliseconds.
package thermal

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is where Linux says what thermal zones the machine has.
const Root = "/sys/class/thermal"

// State is how hot the machine is at a moment.
type State struct {
	// Hot says, for people, which zone is too hot, and since there may be peers among them no more than that; "" when none is.
	Hot string
	// Unknown is why it is not known, likewise; "" when it is.
	Unknown string
}

// How far a zone that is cool stays below what it has a trip point for, in thousandths of a degree Celsius: guests make it warmer, and what is said now
// is not looked at again before something else is asked for. At a passive one the kernel slows the machine down; at the others it is about to stop.
const (
	belowPassive  = 10_000
	belowCritical = 20_000
)

// silent is where x86_pkg_temp counts as critical, the zone of Intel's processors, which has trip points for programs that set them alone.
const silent = 100_000

// Read reads the zones under a folder like Root. One that has no trip point, or says no temperature, tells nothing.
func Read(root string) State {
	zones, err := filepath.Glob(filepath.Join(root, "thermal_zone*"))
	if err != nil || len(zones) == 0 {
		return State{Unknown: "this machine has no thermal zones"}
	}
	told := false
	for _, zone := range zones {
		most, ok := limit(zone)
		now, known := degrees(filepath.Join(zone, "temp"))
		if !ok || !known || word(filepath.Join(zone, "mode")) == "disabled" {
			continue
		}
		if told = true; now >= most {
			return State{Hot: fmt.Sprintf("%s has %d °C, and is cool below %d °C", kind(zone), now/1000, most/1000)}
		}
	}
	if !told {
		return State{Unknown: "no thermal zone of this machine says both how hot it is and how hot it may be"}
	}
	return State{}
}

// limit is below what a zone is cool, by its lowest trip point.
func limit(zone string) (most int, ok bool) {
	points, _ := filepath.Glob(filepath.Join(zone, "trip_point_*_type"))
	for _, point := range points {
		below := belowCritical
		switch word(point) {
		case "passive":
			below = belowPassive
		case "hot", "critical":
		default: // active: a fan's, which may turn
			continue
		}
		at, known := degrees(strings.TrimSuffix(point, "_type") + "_temp")
		if known && (!ok || at-below < most) {
			most, ok = at-below, true
		}
	}
	if !ok && kind(zone) == "x86_pkg_temp" {
		return silent - belowCritical, true
	}
	return most, ok
}

// degrees is a temperature; false where none is said, or one that no machine has and that stands for none.
func degrees(file string) (int, bool) {
	n, err := strconv.Atoi(word(file))
	return n, err == nil && n > 0 && n <= 200_000
}

func kind(zone string) string { return word(filepath.Join(zone, "type")) }

// word is what a file says; "" where it cannot be read.
func word(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
