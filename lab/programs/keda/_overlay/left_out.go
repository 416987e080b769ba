package scalers

import "errors"

// Of a file that is left out, for those that are not.
const externalMetricType = "External"

// The SDKs of the systems that these ask are most of what KEDA compiles. No ScaledObject of the collection has such a trigger.
func leftOut(...any) (Scaler, error) {
	return nil, errors.New("the lab's KEDA is compiled without the scaler of this trigger")
}

var (
	NewActiveMQScaler            = leftOut
	NewApacheKafkaScaler         = leftOut
	NewArangoDBScaler            = leftOut
	NewArtemisQueueScaler        = leftOut
	NewAwsCloudwatchScaler       = leftOut
	NewAwsDynamoDBScaler         = leftOut
	NewAwsDynamoDBStreamsScaler  = leftOut
	NewAwsKinesisStreamScaler    = leftOut
	NewAwsSqsQueueScaler         = leftOut
	NewAzureAppInsightsScaler    = leftOut
	NewAzureBlobScaler           = leftOut
	NewAzureCosmosDBScaler       = leftOut
	NewAzureDataExplorerScaler   = leftOut
	NewAzureEventHubScaler       = leftOut
	NewAzureLogAnalyticsScaler   = leftOut
	NewAzureMonitorScaler        = leftOut
	NewAzurePipelinesScaler      = leftOut
	NewAzureQueueScaler          = leftOut
	NewAzureServiceBusScaler     = leftOut
	NewBeanstalkdScaler          = leftOut
	NewCassandraScaler           = leftOut
	NewClickHouseScaler          = leftOut
	NewCouchDBScaler             = leftOut
	NewDatadogScaler             = leftOut
	NewDynatraceScaler           = leftOut
	NewElasticForecastScaler     = leftOut
	NewElasticsearchScaler       = leftOut
	NewEtcdScaler                = leftOut
	NewForgejoRunnerScaler       = leftOut
	NewGcpCloudTasksScaler       = leftOut
	NewGcpSpannerScaler          = leftOut
	NewGcsScaler                 = leftOut
	NewGitHubRunnerScaler        = leftOut
	NewGraphiteScaler            = leftOut
	NewHuaweiCloudeyeScaler      = leftOut
	NewIBMMQScaler               = leftOut
	NewInfluxDBScaler            = leftOut
	NewKafkaScaler               = leftOut
	NewLiiklusScaler             = leftOut
	NewLokiScaler                = leftOut
	NewMSSQLScaler               = leftOut
	NewMongoDBScaler             = leftOut
	NewMySQLScaler               = leftOut
	NewNATSJetStreamScaler       = leftOut
	NewNSQScaler                 = leftOut
	NewNewRelicScaler            = leftOut
	NewOpensearchScaler          = leftOut
	NewOpenstackMetricScaler     = leftOut
	NewOpenstackSwiftScaler      = leftOut
	NewPostgreSQLScaler          = leftOut
	NewPredictKubeScaler         = leftOut
	NewPubSubScaler              = leftOut
	NewPulsarScaler              = leftOut
	NewRabbitMQScaler            = leftOut
	NewRedisScaler               = leftOut
	NewRedisStreamsScaler        = leftOut
	NewSeleniumGridScaler        = leftOut
	NewSolaceDMScaler            = leftOut
	NewSolaceScaler              = leftOut
	NewSolarWindsScaler          = leftOut
	NewSolrScaler                = leftOut
	NewSplunkObservabilityScaler = leftOut
	NewSplunkScaler              = leftOut
	NewStackdriverScaler         = leftOut
	NewSumologicScaler           = leftOut
	NewTemporalScaler            = leftOut
)
