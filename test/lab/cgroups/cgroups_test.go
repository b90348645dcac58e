package cgroups

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseMountinfo(t *testing.T) {
	for name, c := range map[string]struct {
		mountinfo string
		want      []Hierarchy
	}{
		"v2": {
			`30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot`,
			[]Hierarchy{{Mount: "/sys/fs/cgroup", V2: true}},
		},
		"v1 and v2 beside each other": {
			`23 28 0:21 / /sys rw - sysfs sysfs rw
31 30 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer,clone_children
34 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 30 0:29 / /mnt/elsewhere rw - cgroup cgroup rw,freezer
36 30 0:29 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer`,
			[]Hierarchy{
				{Mount: "/sys/fs/cgroup/systemd", Options: "none,name=systemd"},
				{Mount: "/sys/fs/cgroup/cpu,cpuacct", Options: "cpu,cpuacct"},
				{Mount: "/sys/fs/cgroup/freezer", Options: "freezer"},
				{Mount: "/sys/fs/cgroup/unified", V2: true},
			},
		},
		"nonsense": {"\n - \nx y - z\n", nil},
	} {
		got, err := parse(strings.NewReader(c.mountinfo))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
