package metrics

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/metrics"
)

// columns of kubectl get podmetrics and nodemetrics, as a metrics-server has them.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the pod or node"},
	{Name: "cpu", Type: "string", Format: "quantity", Description: "CPU used"},
	{Name: "memory", Type: "string", Format: "quantity", Description: "Memory used"},
	{Name: "Window", Type: "string", Format: "duration", Description: "Time over which it was measured"},
}

// ConvertToTable writes what kubectl get shows.
func (*Server) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: columns}
	row := func(object runtime.Object) error {
		name, used, over := "", corev1.ResourceList{}, metav1.Duration{}
		switch m := object.(type) {
		case *metrics.PodMetrics:
			name, used, over = m.Name, total(m.Containers), m.Window
		case *metrics.NodeMetrics:
			name, used, over = m.Name, m.Usage, m.Window
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{name, used.Cpu().String(), used.Memory().String(), over.Duration.String()},
			Object: runtime.RawExtension{Object: object},
		})
		return nil
	}
	if !meta.IsListType(object) {
		return table, row(object)
	}
	return table, meta.EachListItem(object, row)
}

func total(containers []metrics.ContainerMetrics) corev1.ResourceList {
	cpu, memory := resource.Quantity{}, resource.Quantity{}
	for c := range slices.Values(containers) {
		cpu.Add(*c.Usage.Cpu())
		memory.Add(*c.Usage.Memory())
	}
	return corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
}
