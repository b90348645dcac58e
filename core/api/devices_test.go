package api

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
)

func TestWhatANodeCanHave(t *testing.T) {
	for name, want := range map[string]bool{
		"cpu": true, "memory": true, "pods": true, "ephemeral-storage": true, "hugepages-2Mi": true, "hugepages-1Gi": true,
		"nvidia.com/gpu": true, "nvidia.com/mig-1g.5gb": true, "gpu.intel.com/xe": true, "smarter-devices/video0": true, "example.com/" + strings.Repeat("x", 63): true,
		"": false, "gpu": false, "widget": false, "storage": false, "hugepages-": false, "hugepages-x": false, "a//b": false, "a..b/c": false, "-a.com/b": false,
		"kubernetes.io/gpu": false, "x.kubernetes.io/gpu": false, "requests.nvidia.com/gpu": false, "example.com/" + strings.Repeat("x", 64): false,
		strings.Repeat("x.", 120) + "com/gpu": false, "NVIDIA.com/gpu": false, "nvidia.com/": false, "nvidia.com/gpu\n": false,
	} {
		if got := Countable(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
		if err := CheckResources("resource", Resources{name: "1"}, true); (err == nil) != (want || name == GPU || name == Storage) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestDevicesAreSharedWhole(t *testing.T) {
	for amount, ok := range map[string]bool{"1": true, "0": true, "50%": true, "500m": false, "1.5": false, "1k": false, "1Gi": false, "101%": false, "1234567890": false} {
		for _, name := range []string{"nvidia.com/gpu", GPU} {
			if err := CheckResources("resource", Resources{name: amount}, true); (err == nil) != ok {
				t.Errorf("%s %s: %v", name, amount, err)
			}
		}
	}
}

func TestAGPUIsNamedWhereThereIsOneKind(t *testing.T) {
	for _, c := range []struct {
		names     string
		want, why string
	}{
		{"cpu nvidia.com/gpu example.com/widget", "nvidia.com/gpu", ""},
		{"cpu nvidia.com/gpu.shared", "nvidia.com/gpu.shared", ""},
		{"nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb", ""},
		{"gpu.intel.com/xe", "gpu.intel.com/xe", ""},
		{"cpu example.com/widget", "", "no resource on the nodes here"},
		{"", "", "no resource on the nodes here"},
		{"nvidia.com/gpu amd.com/gpu", "", "2 kinds on the nodes here: amd.com/gpu, nvidia.com/gpu"},
	} {
		asked := Resources{"cpu": "2", GPU: "1"}
		got, err := NameGPU(asked, strings.Fields(c.names), "on the nodes here")
		var no *Error
		switch {
		case c.why == "" && (err != nil || !maps.Equal(got, Resources{"cpu": "2", c.want: "1"})):
			t.Errorf("%s: %v %v", c.names, got, err)
		case c.why != "" && (!errors.As(err, &no) || !strings.Contains(no.Reason, c.why) || no.Do == ""):
			t.Errorf("%s: %v %v", c.names, got, err)
		}
		if asked[GPU] != "1" {
			t.Error("what was asked is changed")
		}
	}
	if _, err := NameGPU(Resources{GPU: "1", "amd.com/gpu": "2"}, []string{"amd.com/gpu"}, "here"); err == nil {
		t.Error("given twice")
	}
	if got, err := NameGPU(Resources{"cpu": "1"}, nil, "here"); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
}

func TestLabelsThatDescribeDevicesOnly(t *testing.T) {
	labels := map[string]string{
		"nvidia.com/gpu.product": "RTX-4090", "nvidia.com/gpu.memory": "24564", "nvidia.com/gpu.count": "1", "amd.com/gpu.family": "AI",
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true", "nvidia.com/cuda.driver.major": "580", "nvidia.com/gpu": "yes", "nvidia.com/gpux": "no",
		"kubernetes.io/hostname": "bob", "node-role.kubernetes.io/control-plane": "", "kith.dev/peer": "x",
	}
	of := func(resources ...string) string {
		var keys []string
		for key := range DeviceLabels(labels, resources) {
			keys = append(keys, key)
		}
		return strconv.Itoa(len(keys))
	}
	for _, c := range []struct{ resource, want string }{
		{"nvidia.com/gpu", "3"}, {"nvidia.com/gpu.shared", "3"}, {"amd.com/gpu", "1"}, {"example.com/widget", "0"}, {"cpu", "0"}, {"kubernetes.io/hostname", "0"},
	} {
		if got := of(c.resource); got != c.want {
			t.Errorf("%s: %s labels, want %s: %v", c.resource, got, c.want, DeviceLabels(labels, []string{c.resource}))
		}
	}
	many := map[string]string{}
	for i := range 1000 {
		many["example.com/widget.n"+strconv.Itoa(i)] = "x"
	}
	if got := len(DeviceLabels(many, []string{"example.com/widget"})); got != maxDeviceLabels {
		t.Errorf("%d labels", got)
	}
}
