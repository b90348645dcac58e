package supply

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// Supply is what there is to promise, and what is not free of it.
type Supply struct {
	Nodes   corev1.ResourceList   // what the nodes that take guests can allocate together; a resource that is not in it is not known
	Own     corev1.ResourceList   // what the owner's own pods request; see Own. Nil: not to be looked at
	Granted []corev1.ResourceList // what contracts grant, by contract
	Reserve corev1.ResourceList   // what is to stay free for the owner beside that

	// Classes are the storage classes of this cluster; nil: nobody looked.
	Classes []string

	Room    *resource.Quantity // what the disks have room for beside what is on them, of scratch space and volumes; nil: nobody knows
	Scratch resource.Quantity  // what others have of scratch space beside that, as a part of Nodes; volumes are on this cluster's disks
}

// Disk tells what is free on the disk of a node, in bytes. A nil Disk knows of none.
type Disk func() (node string, free int64)

// Left is what of a resource nobody has, never negative, and by what it is not more. known is false for one of which no node says how much
// there is.
func (s Supply) Left(name corev1.ResourceName) (left resource.Quantity, by api.BoundBy, known bool) {
	all, known := s.Nodes[name]
	if !known {
		return left, "", false
	}
	left, by = all.DeepCopy(), api.BoundByAllocatable
	for _, taken := range []struct {
		what resource.Quantity
		by   api.BoundBy
	}{{s.Promised(name), api.BoundByGranted}, {s.Own[name], api.BoundByOwnPods}, {s.Reserve[name], api.BoundByReserve}} {
		if left.Sub(taken.what); taken.what.Sign() > 0 {
			by = taken.by
		}
	}
	if room := s.RoomFor(name); room != nil {
		for _, each := range []corev1.ResourceName{corev1.ResourceEphemeralStorage, corev1.ResourceStorage} {
			room.Sub(s.Promised(each)) // guests may not have written any of it yet
			room.Sub(s.Reserve[each])
		}
		if room.Cmp(left) < 0 {
			left, by = *room, api.BoundByDisk
		}
	}
	if left.Sign() < 0 {
		left = resource.Quantity{Format: all.Format}
	}
	return left, by, true
}

// RoomFor is what there is room for of a resource that is a part of what disks have, and nil for others, and where nobody knows. What others have
// lets nobody have a volume here; all scratch space that was promised may be used here.
func (s Supply) RoomFor(name corev1.ResourceName) *resource.Quantity {
	if s.Room == nil || name != corev1.ResourceEphemeralStorage && name != corev1.ResourceStorage {
		return nil
	}
	room := s.Room.DeepCopy()
	if name == corev1.ResourceEphemeralStorage {
		room.Add(s.Scratch)
	}
	return &room
}

// Promised is what contracts grant of a resource together.
func (s Supply) Promised(name corev1.ResourceName) (sum resource.Quantity) {
	for _, grant := range s.Granted {
		sum.Add(grant[name])
	}
	return sum
}

// Nodes is what the nodes that take guests can allocate together. Those that stand for peers have nothing of this cluster, and where no fence
// is alive there is nothing to promise.
func Nodes(nodes []corev1.Node) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for i := range nodes {
		if v1alpha1.Fenced(&nodes[i]) {
			add(sum, nodes[i].Status.Allocatable)
		}
	}
	return sum
}

// Room is Nodes' scratch space as far as disks have room for it: of a node whose disk is known no more than is free on it, in whole gibibytes, less
// what the node keeps for itself. Nil where none is known.
func Room(nodes []corev1.Node, disk Disk) *resource.Quantity {
	const name, whole = corev1.ResourceEphemeralStorage, int64(1 << 30)
	if disk == nil {
		return nil
	}
	on, free := disk()
	sum, known := resource.NewQuantity(0, resource.BinarySI), false
	for i := range nodes {
		if !v1alpha1.Fenced(&nodes[i]) {
			continue
		}
		all, capacity := nodes[i].Status.Allocatable[name], nodes[i].Status.Capacity[name]
		if nodes[i].Name == on {
			known = true
			free -= max(capacity.Value()-all.Value(), 0)
			all = *resource.NewQuantity(min(all.Value(), max(free/whole*whole, 0)), resource.BinarySI)
		}
		sum.Add(all)
	}
	if !known {
		return nil
	}
	return sum
}

// Own is what the owner's own pods request of the nodes that take guests, one of "pods" each, in steps (see step): guests are counted by their
// contracts, and what runs on another node or at peers, has ended or has no node yet takes nothing here.
func Own(pods []corev1.Pod, nodes []corev1.Node) corev1.ResourceList {
	sum, all, counts := corev1.ResourceList{}, Nodes(nodes), map[string]bool{}
	for i := range nodes {
		counts[nodes[i].Name] = v1alpha1.Fenced(&nodes[i])
	}
	for i := range pods {
		if pod := &pods[i]; own(pod) && counts[pod.Spec.NodeName] && !v1alpha1.Ended(pod.Status.Phase) {
			add(sum, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}))
			add(sum, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
		}
	}
	for name, q := range sum {
		if q.Sign() <= 0 {
			delete(sum, name)
			continue
		}
		sum[name] = roundUp(name, q, all[name])
	}
	return sum
}

// own reports whether a pod is the owner's and runs, or ran, on a node of this cluster.
func own(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.LabelConsumer] == "" && pod.Spec.NodeName != "" && !strings.HasPrefix(pod.Spec.NodeName, v1alpha1.VirtualNodePrefix)
}

func add(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name]
		total.Add(q)
		sum[name] = total
	}
}

// steps in which own pods are counted, so that what is offered does not change with each that starts or ends: thousandths of a
// CPU, bytes, pods. What is not here, devices, is counted exactly.
var steps = map[corev1.ResourceName]int64{
	corev1.ResourceCPU:              500,
	corev1.ResourceMemory:           512 << 20,
	corev1.ResourceEphemeralStorage: 1 << 30,
	corev1.ResourcePods:             10,
}

// parts of the whole that a step is at least: on a large cluster half a CPU would be nothing.
const parts = 32

// roundUp gives the next whole step, at most all there is, unless more is used already.
func roundUp(name corev1.ResourceName, used, all resource.Quantity) resource.Quantity {
	step, ok := steps[name]
	if !ok {
		return used
	}
	amount, most := used.Value(), all.Value()
	if name == corev1.ResourceCPU {
		amount, most = used.MilliValue(), all.MilliValue()
	}
	if whole := most / parts / step; whole > 1 {
		step *= whole
	}
	amount = max(min((amount+step-1)/step*step, most), amount)
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(amount, resource.DecimalSI)
	}
	format := resource.BinarySI
	if name == corev1.ResourcePods {
		format = resource.DecimalSI
	}
	return *resource.NewQuantity(amount, format)
}

// Slim is a transform for a cache of pods (client-go's TransformFunc). Of the owner's pods on this cluster's nodes it keeps who and
// where they are, how they are, what they request and which ports of the host they have: on a cluster with thousands of them what they
// run, with which environment and volumes, is most of the memory, and nobody here asks for it. Guests, and pods that run at peers or may
// go there, stay whole. An object that was slimmed must be patched, never updated.
func Slim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	if !own(pod) {
		return pod, nil
	}
	pod.Annotations, pod.Spec.Volumes, pod.Spec.EphemeralContainers, pod.Spec.Affinity = nil, nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i, c := range containers {
			containers[i] = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy, Ports: hostPorts(c.Ports)}
		}
	}
	return pod, nil
}

func hostPorts(all []corev1.ContainerPort) (ports []corev1.ContainerPort) {
	for _, p := range all {
		if p.HostPort > 0 {
			ports = append(ports, p)
		}
	}
	return ports
}
