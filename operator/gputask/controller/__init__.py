"""The operator: Kopf and informers feed one store, one scheduling loop decides, admissions act, statuses follow."""
