package lab

import (
	"os"
	"strconv"
	"strings"
)

// limits of the whole kernel that a machine with many laptops on it runs into. They are raised where they are lower,
// and stay so: lowering them again could hurt what was started since.
var limits = map[string]int{
	"fs/inotify/max_user_instances":     8192, // about 20 a laptop with an engine, and the usual limit is 128
	"fs/inotify/max_user_watches":       524288,
	"net/ipv4/neigh/default/gc_thresh2": 8192, // all namespaces share the table: 50 laptops make 2450 neighbours
	"net/ipv4/neigh/default/gc_thresh3": 16384,
}

// raiseLimits does what it can; a limit that cannot be raised shows as an error of the program that meets it.
func raiseLimits() {
	for name, least := range limits {
		path := "/proc/sys/" + name
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if have, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && have < least {
			_ = os.WriteFile(path, []byte(strconv.Itoa(least)), 0o644)
		}
	}
}
