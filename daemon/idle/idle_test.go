package idle

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/api/v1alpha1"
)

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 3}
}

func cronJob(schedule, zone string) batchv1.CronJob {
	j := batchv1.CronJob{ObjectMeta: meta("report"), Spec: batchv1.CronJobSpec{Schedule: schedule}}
	if zone != "" {
		j.Spec.TimeZone = &zone
	}
	return j
}

// claim is one with the state of a move.
func claim(move string) corev1.PersistentVolumeClaim {
	m := meta("data")
	m.Annotations = map[string]string{v1alpha1.AnnotationMove: move}
	return corev1.PersistentVolumeClaim{ObjectMeta: m}
}

func TestWhatKeepsAClusterAwake(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 30, 0, time.UTC)
	gone := metav1.NewTime(now)
	for _, tt := range []struct {
		name  string
		world World
		want  Verdict
	}{
		{name: "nothing"},
		{name: "a pod that ended", world: World{Pods: []corev1.Pod{{ObjectMeta: meta("done"), Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}}}},
		{name: "a pod that waits", world: World{Pods: []corev1.Pod{{ObjectMeta: meta("web")}}}, want: Verdict{Stay: Pods, What: "pod shop/web"}},
		{name: "a volume on its way", world: World{Claims: []corev1.PersistentVolumeClaim{claim(`{"phase":"Stopped"}`)}}, want: Verdict{Stay: Volumes, What: "claim shop/data"}},
		{name: "a volume that could not be moved", world: World{Claims: []corev1.PersistentVolumeClaim{claim(`{"phase":"Failed"}`), claim("")}}},
		{name: "a node alone", world: World{Nodes: make([]corev1.Node, 1)}},
		{name: "a node that joined", world: World{Nodes: make([]corev1.Node, 2)}, want: Verdict{Stay: Nodes, What: "2 nodes"}},
		{name: "a node that joined, and has a peer's label", world: World{Nodes: []corev1.Node{{}, {ObjectMeta: metav1.ObjectMeta{Name: "desk", Labels: map[string]string{v1alpha1.LabelPeer: "bob"}}}}}, want: Verdict{Stay: Nodes, What: "2 nodes"}},
		{name: "a namespace that ends", world: World{Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "old", DeletionTimestamp: &gone}}}}, want: Verdict{Stay: Ending, What: "namespace old"}},
		{name: "a job whose pod failed and is made again in a minute", world: World{Jobs: []batchv1.Job{{ObjectMeta: meta("load")}}}, want: Verdict{Stay: Workloads, What: "job shop/load"}},
		{name: "a job that is suspended", world: World{Jobs: []batchv1.Job{{ObjectMeta: meta("load"), Spec: batchv1.JobSpec{Suspend: new(true)}}}}},
		{name: "a job that ended", world: World{Jobs: []batchv1.Job{{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}}}}},
		{name: "replicas that no quota lets in", world: World{Sets: []appsv1.ReplicaSet{{ObjectMeta: meta("web"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2))}, Status: appsv1.ReplicaSetStatus{ObservedGeneration: 3}}}}, want: Verdict{Stay: Workloads, What: "replicaset shop/web"}},
		{name: "no replicas wanted", world: World{Sets: []appsv1.ReplicaSet{{ObjectMeta: meta("web"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0))}, Status: appsv1.ReplicaSetStatus{ObservedGeneration: 3}}}}},
		{name: "a set that its controller has not seen", world: World{Stateful: []appsv1.StatefulSet{{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0))}}}}, want: Verdict{Stay: Workloads, What: "statefulset shop/db"}},
		{name: "one replica where nothing is said", world: World{Stateful: []appsv1.StatefulSet{{ObjectMeta: meta("db"), Status: appsv1.StatefulSetStatus{ObservedGeneration: 3}}}}, want: Verdict{Stay: Workloads, What: "statefulset shop/db"}},
		{name: "a CronJob of the night", world: World{CronJobs: []batchv1.CronJob{cronJob("0 3 * * *", "UTC")}}, want: Verdict{What: "cronjob shop/report", Until: time.Date(2026, 11, 29, 2, 59, 45, 0, time.UTC)}},
		{name: "in another time zone", world: World{CronJobs: []batchv1.CronJob{cronJob("0 22 * * *", "Asia/Tokyo")}}, want: Verdict{What: "cronjob shop/report", Until: time.Date(2026, 11, 28, 12, 59, 45, 0, time.UTC)}},
		{name: "the first of two", world: World{CronJobs: []batchv1.CronJob{cronJob("0 3 * * *", "UTC"), cronJob("@hourly", "UTC")}}, want: Verdict{What: "cronjob shop/report", Until: time.Date(2026, 11, 28, 12, 59, 45, 0, time.UTC)}},
		{name: "a CronJob of each five minutes", world: World{CronJobs: []batchv1.CronJob{cronJob("*/5 * * * *", "UTC")}}, want: Verdict{Stay: Schedule, What: "cronjob shop/report"}},
		{name: "a schedule that cannot be read", world: World{CronJobs: []batchv1.CronJob{cronJob("now and then", "")}}, want: Verdict{Stay: Schedule, What: "cronjob shop/report"}},
		{name: "a time zone that is none", world: World{CronJobs: []batchv1.CronJob{cronJob("@daily", "Nowhere/Near")}}, want: Verdict{Stay: Schedule, What: "cronjob shop/report"}},
		{name: "a day that never comes", world: World{CronJobs: []batchv1.CronJob{cronJob("0 0 31 2 *", "UTC")}}, want: Verdict{Stay: Schedule, What: "cronjob shop/report"}},
		{name: "a suspended CronJob", world: World{CronJobs: []batchv1.CronJob{{Spec: batchv1.CronJobSpec{Schedule: "* * * * *", Suspend: new(true)}}}}},
		{name: "a contract in force", world: World{
			Nodes: []corev1.Node{{}, {ObjectMeta: metav1.ObjectMeta{Name: "kith-bob", Labels: map[string]string{v1alpha1.LabelPeer: "bob"}}}},
			Agreed: &ledger.Snapshot{
				Contracts: []*v1alpha1.Contract{{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}},
				Peers:     []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateConnected}}}},
			},
		}},
		{name: "a contract that ends", world: World{Agreed: &ledger.Snapshot{Peers: []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Status: v1alpha1.PeerStatus{Incoming: v1alpha1.DirectionStatus{State: v1alpha1.StateEnding}}}}}}, want: Verdict{Stay: Contract, What: "peer bob"}},
		{name: "a guest whose pod is not made yet", world: World{Guests: []v1alpha1.OffloadedPod{{ObjectMeta: meta("web")}}}, want: Verdict{Stay: Pods, What: "guest shop/web"}},
		{name: "a guest that was refused", world: World{Guests: []v1alpha1.OffloadedPod{{ObjectMeta: meta("web"), Status: v1alpha1.OffloadedPodStatus{Phase: v1alpha1.OffloadedPodRefused}}}}},
		{name: "a peer that is asked", world: World{Agreed: &ledger.Snapshot{Peers: []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateRequested}}}}}}, want: Verdict{Stay: Contract, What: "peer bob"}},
		{name: "a peer that declined", world: World{Agreed: &ledger.Snapshot{Peers: []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Status: v1alpha1.PeerStatus{Outgoing: v1alpha1.DirectionStatus{State: v1alpha1.StateDeclined}}}}}}},
		{name: "a peer that is known", world: World{Agreed: &ledger.Snapshot{Peers: []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}}}}},
		{name: "a company", world: World{Agreed: &ledger.Snapshot{Peers: []*v1alpha1.Peer{{ObjectMeta: metav1.ObjectMeta{Name: "corp"}, Spec: v1alpha1.PeerSpec{Tethered: &v1alpha1.Tethered{}}}}}}, want: Verdict{Stay: Tether, What: "peer corp"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.world.Agreed == nil {
				tt.world.Agreed = &ledger.Snapshot{}
			}
			got := tt.world.Decide(now, 10*time.Minute)
			if got.Stay != tt.want.Stay || got.What != tt.want.What || !got.Until.Equal(tt.want.Until) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// To sleep takes what the API server says now: a cache may be late.
func TestAPodThatNoCacheHasKeepsTheClusterAwake(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	old := fake.NewClientBuilder().WithScheme(scheme).Build()
	now := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Pod{ObjectMeta: meta("web")}).Build()
	if v, err := Look(t.Context(), old, now, &ledger.Snapshot{}, time.Now(), time.Minute); err != nil || v.Stay != Pods {
		t.Errorf("%+v, %v", v, err)
	}
	if v, err := Look(t.Context(), old, old, &ledger.Snapshot{}, time.Now(), time.Minute); err != nil || v.Stay != "" {
		t.Errorf("%+v, %v", v, err)
	}
}
