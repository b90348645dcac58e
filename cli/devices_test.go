package cli_test

import (
	"strings"
	"testing"

	"kith.dev/core/api"
)

// Which GPU --gpu is, kithd finds out.
func TestAGPUIsAskedForWithoutItsName(t *testing.T) {
	b := world()
	if out, errs, code := serve(t, b).run("peer", "bob", "--gpu", "1", "--wait=false"); code != 0 || !strings.Contains(strings.Join(b.Called(), "; "), "Ask bob gpu 1") {
		t.Errorf("exit code %d, called %q: %s%s", code, b.Called(), out, errs)
	}
	for _, wrong := range []string{"0", "1.5", "half", "-1"} {
		b := world()
		if _, errs, code := serve(t, b).run("peer", "bob", "--gpu="+wrong); code == 0 || !strings.Contains(errs, "resource.gpu") || len(b.Called()) > 0 {
			t.Errorf("%s: exit code %d, called %q: %s", wrong, code, b.Called(), errs)
		}
	}
}

// However much else a contract grants, its devices are not cut off.
func TestDevicesAreShownWhole(t *testing.T) {
	b := world()
	b.Signed[0].Resources = api.Resources{"cpu": "2500m", "memory": "12001Mi", "pods": "55", "ephemeral-storage": "126429Mi", "nvidia.com/gpu": "2", "example.com/widget": "1"}
	b.Signed[0].Used = api.Resources{"nvidia.com/gpu": "1"}
	b.Known[0].Offered, b.Known[0].Used = b.Signed[0].Resources, b.Signed[0].Used
	b.State.Sharing.Amounts, b.State.Sharing.Used = b.Signed[0].Resources, b.Signed[0].Used
	k := serve(t, b)
	for command, want := range map[string]string{
		"contract list": "example.com/widget 0/1, nvidia.com/gpu 1/2", "contract show bob-out": "example.com/widget 0 of 1, nvidia.com/gpu 1 of 2",
		"peers -o wide": "example.com/widget 0/1, nvidia.com/gpu 1/2", "status": "example.com/widget 0/1, nvidia.com/gpu 1/2",
	} {
		if out, errs, _ := k.run(strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("kith %s: %s%s", command, out, errs)
		}
	}
}
