// Package power tells where this machine's power comes from: whether it is on mains, and how full its batteries are. Whoever offers something under
// a condition asks it, at that moment, and who keeps the machine awake when it is told that they drain; it watches nothing, and must never be asked
// in a loop by a machine that could rest.
package power

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is where Linux says what supplies the machine has. Elsewhere there is no such folder, and the machine counts as one on mains.
const Root = "/sys/class/power_supply"

// State is where power comes from at a moment.
type State struct {
	// OnMains: a supply other than the batteries gives power. A machine without batteries always is.
	OnMains bool
	// Battery is how full the batteries are, in per cent, on average; None where there is none. One that does not say counts as empty.
	Battery int
}

// None is the Battery of a machine without.
const None = -1

// Read reads the supplies under a folder like Root. The batteries of devices, of a mouse for example, are not the machine's.
func Read(root string) State {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // there may be some: who cannot tell is on battery, and that is empty
		return State{}
	}
	var external, online, batteries, draining, sum int
	for _, e := range entries {
		supply := filepath.Join(root, e.Name())
		if word(supply, "scope") == "Device" {
			continue
		}
		switch word(supply, "type") {
		case "Mains", "USB", "Wireless":
			if external++; word(supply, "online") != "0" && word(supply, "online") != "" {
				online++
			}
		case "Battery", "UPS":
			if word(supply, "present") == "0" {
				continue
			}
			batteries++
			sum += full(supply)
			if word(supply, "status") == "Discharging" {
				draining++
			}
		}
	}
	if batteries == 0 {
		return State{OnMains: true, Battery: None}
	}
	return State{OnMains: online > 0 || external == 0 && draining == 0, Battery: sum / batteries}
}

// full is how full a battery is, in per cent.
func full(supply string) int {
	if n, ok := number(supply, "capacity"); ok {
		return min(max(n, 0), 100)
	}
	for _, unit := range []string{"energy", "charge"} {
		now, ok := number(supply, unit+"_now")
		most, known := number(supply, unit+"_full")
		if ok && known && most > 0 {
			return min(max(now/(max(most/100, 1)), 0), 100)
		}
	}
	return 0
}

func number(supply, file string) (int, bool) {
	n, err := strconv.Atoi(word(supply, file))
	return n, err == nil
}

// word is what a file says; "" where it cannot be read.
func word(supply, file string) string {
	text, err := os.ReadFile(filepath.Join(supply, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
