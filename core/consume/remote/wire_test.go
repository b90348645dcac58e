package remote

import (
	"fmt"
	"strings"
	"testing"
)

// What the API server would refuse makes the whole status of the node impossible to write: a peer could have its node NotReady
// with every resource that it has, or show others what is no line of text.
func TestWhatAPeerSaysOfItsMachineIsBounded(t *testing.T) {
	many := make([]string, maxFeatures+1)
	for i := range many {
		many[i] = fmt.Sprintf("Feature%d", i)
	}
	for name, c := range map[string]struct {
		machine Machine
		refused string
	}{
		"nothing":               {Machine{}, ""},
		"an honest one":         {Machine{"6.12.0-kith+", "5e1f1d0c-1111", "containerd://2.2.1", []string{"RestartAllContainersOnContainerExits", "GuaranteedQoSPodCPUResize/withState"}}, ""},
		"a long word":           {Machine{KernelVersion: strings.Repeat("6", maxMachineWord+1)}, "kernelVersion"},
		"two lines":             {Machine{BootID: "a\nb"}, "bootID"},
		"the screen's controls": {Machine{ContainerRuntimeVersion: "\x1b[2Jcontainerd"}, "containerRuntimeVersion"},
		"no text":               {Machine{KernelVersion: "\xff"}, "kernelVersion"},
		"many features":         {Machine{DeclaredFeatures: many}, "65 entries"},
		"an odd feature":        {Machine{DeclaredFeatures: []string{"Fine", "not fine"}}, "not fine"},
		"a small feature":       {Machine{DeclaredFeatures: []string{"small"}}, "small"},
		"an empty feature":      {Machine{DeclaredFeatures: []string{""}}, "declaredFeatures"},
		"a feature and a slash": {Machine{DeclaredFeatures: []string{"Fine/"}}, "Fine/"},
		"a long feature":        {Machine{DeclaredFeatures: []string{"F" + strings.Repeat("o", 200)}}, "declaredFeatures"},
	} {
		err := c.machine.Validate()
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
