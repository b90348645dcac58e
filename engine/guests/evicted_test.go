package guests

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/utils/clock"

	"kith.dev/engine/network"
)

// short is a node whose memory is short, and its only disk.
type short struct{ *statsapi.Summary }

func (s short) Get(context.Context, bool) (*statsapi.Summary, error) { return s.Summary, nil }
func (s short) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return s.Summary, nil
}
func (short) HasDedicatedImageFs(context.Context) (bool, error)     { return false, nil }
func (short) HasDedicatedContainerFs(context.Context) (bool, error) { return false, nil }

// Nothing of these makes memory free, and the kubelet does not ask for it then.
func (short) DeleteUnusedImages(context.Context) error        { return nil }
func (short) DeleteAllUnusedContainers(context.Context) error { return nil }

// A guest that has less than it asked for is evicted before a pod of the owner's that asked for nothing, and not where none is a guest.
func TestGuestsAreEvictedFirstWhenMemoryIsShort(t *testing.T) {
	for class, first := range map[string]string{network.GuestRuntime: "asked", network.GuestNVIDIARuntime: "asked", network.NVIDIARuntime: "greedy"} {
		now := metav1.Now()
		memory := func(available, used uint64) *statsapi.MemoryStats {
			return &statsapi.MemoryStats{Time: now, AvailableBytes: &available, WorkingSetBytes: &used}
		}
		node := short{&statsapi.Summary{Node: statsapi.NodeStats{Memory: memory(50<<20, 8<<30)}}}
		var pods []*corev1.Pod
		for name, asked := range map[string]string{"greedy": "0", "asked": "2Gi"} {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(asked)},
				}}}},
			}
			if name == "asked" {
				pod.Spec.RuntimeClassName = &class
			}
			pods = append(pods, pod)
			node.Pods = append(node.Pods, statsapi.PodStats{PodRef: statsapi.PodReference{Name: name, Namespace: "default", UID: name}, Memory: memory(0, 1<<30)})
		}
		least := resource.MustParse("100Mi")
		evicted := make(chan string, 1)
		manager, _ := eviction.NewManager(node, eviction.Config{Thresholds: []evictionapi.Threshold{{
			Signal: evictionapi.SignalMemoryAvailable, Operator: evictionapi.OpLessThan, Value: evictionapi.ThresholdValue{Quantity: &least},
		}}}, func(pod *corev1.Pod, _ bool, _ *int64, _ func(*corev1.PodStatus)) error {
			select {
			case evicted <- pod.Name:
			default:
			}
			return nil
		}, node, node, record.NewFakeRecorder(100), &corev1.ObjectReference{}, clock.RealClock{}, false)
		manager.Start(t.Context(), node, func() []*corev1.Pod { return pods }, func(*corev1.Pod) bool { return false }, time.Hour)
		select {
		case got := <-evicted:
			if got != first {
				t.Errorf("RuntimeClass %s: %s is evicted first", class, got)
			}
		case <-time.After(time.Minute):
			t.Fatalf("RuntimeClass %s: nobody is evicted", class)
		}
	}
}
