package api

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// GPU stands, in what is shared and asked for, for the one kind of GPU that is meant: kithd puts its name in its place. It is stored nowhere.
const GPU = "gpu"

// MaxResourceName bounds the name of a resource, in bytes: with "requests." before it, it is also a name in a ResourceQuota, whose domain
// Kubernetes takes up to 253.
const MaxResourceName = 240

// extended is a qualified name of Kubernetes that has a domain, hugePages is what pages of one size are called.
var (
	extended  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
	hugePages = regexp.MustCompile(`^hugepages-[1-9][0-9]{0,8}(Ki|Mi|Gi)?$`)
)

// Extended reports whether a resource is what Kubernetes calls an extended one, such as nvidia.com/gpu: a node has it by a device plugin, and
// it is counted in whole numbers.
func Extended(name string) bool {
	return len(name) <= MaxResourceName && extended.MatchString(name) && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.") &&
		!strings.HasSuffix(name, ofClass)
}

// Countable reports whether a node can have the resource and pods can ask for it: Kubernetes' own, or an extended one.
func Countable(name string) bool {
	switch name {
	case CPU, Memory, Pods, EphemeralStorage:
		return true
	}
	return hugePages.MatchString(name) || Extended(name)
}

// isGPU reports whether an extended resource is a GPU, by how vendors call theirs: nvidia.com/gpu, nvidia.com/gpu.shared,
// nvidia.com/mig-1g.5gb, amd.com/gpu, gpu.intel.com/xe.
func isGPU(name string) bool {
	domain, device, _ := strings.Cut(name, "/")
	return Extended(name) && (device == "gpu" || strings.HasPrefix(device, "gpu.") || strings.HasPrefix(device, "mig-") || strings.HasPrefix(domain, "gpu."))
}

// NameGPU gives the amounts with the name of the GPU in the place of GPU: the one among names. where says whose these are, as in "here". What
// names no GPU stays as it is. The error is an *Error with CodeInvalid that says what to do.
func NameGPU(amounts Resources, names []string, where string) (Resources, error) {
	amount, asked := amounts[GPU]
	if !asked {
		return amounts, nil
	}
	gpus := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isGPU(name) })
	slices.Sort(gpus)
	no := &Error{Code: CodeInvalid, Message: "which GPU is meant?", Field: GPU}
	switch {
	case len(gpus) == 0:
		no.Reason, no.Do = "no resource "+where+" is called as GPUs are", "name the resource, as in --resource nvidia.com/gpu=1"
		return nil, no
	case len(gpus) > 1:
		no.Reason = fmt.Sprintf("there are %d kinds %s: %s", len(gpus), where, strings.Join(gpus[:min(len(gpus), 8)], ", "))
		no.Do = fmt.Sprintf("name one, as in --resource %s=1", gpus[0])
		return nil, no
	}
	named := maps.Clone(amounts)
	delete(named, GPU)
	if _, twice := named[gpus[0]]; twice {
		no.Message, no.Reason = gpus[0]+" is given twice", "it is the GPU "+where
		return nil, no
	}
	named[gpus[0]] = amount
	return named, nil
}

// maxDeviceLabels bounds the labels that describe devices.
const maxDeviceLabels = 32

// DeviceLabels are those labels of a node that describe devices of the extended resources named: whose key is the resource's name, a dot and
// more, as nvidia.com/gpu.product is for nvidia.com/gpu. A resource whose devices are shared between pods (nvidia.com/gpu.shared) has the
// labels of the devices themselves. Left out are those by which operators of devices place their own parts on nodes: .present and .deploy.
// Of very many the first by name are taken.
func DeviceLabels(labels map[string]string, resources []string) map[string]string {
	described := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		of := func(resource string) bool {
			what, describes := strings.CutPrefix(key, strings.TrimSuffix(resource, ".shared")+".")
			return describes && Extended(resource) && what != "present" && what != "deploy" && !strings.HasPrefix(what, "deploy.")
		}
		if len(described) < maxDeviceLabels && slices.ContainsFunc(resources, of) {
			described[key] = labels[key]
		}
	}
	return described
}
